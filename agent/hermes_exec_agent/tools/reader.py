"""Reads for a model: files outside of the workspace, and well-known secrets, need the person's approval."""

from __future__ import annotations

import asyncio
import json
import os
from functools import cache
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec.guest.files.real_path import source
from hermes_exec_agent.tools.inside.sensitive import is_below, secret_below, secret_of
from hermes_exec_agent.tools.target_python import build_argv
from hermes_exec_agent.tools.tool import ReadDenied, check_approval

if TYPE_CHECKING:
    from collections.abc import Collection

    from hermes_exec.files import ResolvedPath
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.tools.tool import Context

_VARIABLES = ("HERMES_EXEC_CONVERSATIONS", "HERMES_EXEC_SKILLS", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME")
OUTSIDE = "outside"
_NOWHERE = "which no path leads to"
_ALIAS = "another name (a hard link) of a secret"
_ALIASES = "which has several names (hard links) and may be a secret by one"
_REASONS = frozenset({_NOWHERE, _ALIAS, _ALIASES})
_LIMIT_S = 60
_RESOLVE = """exec 3< "$1" || exit 2
path=$(readlink /proc/self/fd/3; echo x) && links=$(stat -L -c %h /proc/self/fd/3) &&
[ "$(stat -c %d:%i "${path%?x}")" = "$(stat -L -c %d:%i /proc/self/fd/3)" ] &&
printf '%s\\0%s\\0' "${path%?x}" "$links" && cat /proc/self/mountinfo
"""


class FileReader:
    """Reads one file of the target, after checking that the model may see it.

    The question is about the file that is read: its path is resolved as it is opened, and a path that leads to another
    file at the next piece is refused.
    """

    def __init__(self, tool: str, context: Context, *, seen: Collection[str] = ()) -> None:
        """``seen`` are paths that the person has just read in an approval of the same call."""
        self._tool = tool
        self._context = context
        self._seen = seen
        self._where: ResolvedPath | None = None
        self._whole: bytes | None = None

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read bytes of the file at an absolute path.

        Raises:
            Denied: the model may not see it.
            TransferError: it cannot be read.
        """
        if not self._context.terminal.capabilities.file_transfer:
            whole = await self._read_plainly(path)
            return whole[offset:] if length is None else whole[offset : offset + length]
        files = self._context.terminal.files
        if self._where is None and not self._is_likely(path):
            await self._settle(path, await files.resolve(path))
        where, data = await files.read_resolved(self._where.path if self._where else path, offset, length)
        if self._where is None:
            await self._settle(path, where)
        elif where.identity != self._where.identity or where.path != self._where.path:
            raise ReadDenied(f"{path} leads to another file than before; nothing of that was read. Try: the same again")
        return data

    async def _read_plainly(self, path: str) -> bytes:
        if self._whole is None:
            where = await _resolve_plainly(path, self._context)
            await self._settle(path, where)
            self._whole = await self._context.terminal.read(where.path or path)
        return self._whole

    def _is_likely(self, path: str) -> bool:
        """Whether a path looks free as written, so that it is read first and judged by where it led."""
        workspace = self._context.workspace
        if workspace.kept and is_below(path, workspace.kept):
            return True
        inside = any(is_below(path, each) for each in (workspace.root, workspace.start) if each)
        return inside and not secret_of(path, _ours())

    async def _settle(self, path: str, where: ResolvedPath) -> None:
        """Ask for approval if needed, and remember the resolved path."""
        kind = await self._kind(where)
        if kind == OUTSIDE and where.path in self._seen:
            kind = ""
        if kind:
            await ask(self._tool, "read", path, where.path, kind, self._context)
        self._where = where

    async def _kind(self, where: ResolvedPath) -> str:
        context = self._context
        root, kept = context.workspace.root, context.workspace.kept
        if not where.path:
            return _NOWHERE
        if kept and is_below(where.path, kept):
            return ""
        for path in (where.path, where.source):
            if path and (kind := secret_of(path, _ours())):
                return kind
        if where.links > 1 and (kind := await _other_name(where, context)):
            return kind
        return "" if root and is_below(where.path, root) else OUTSIDE


async def ask(tool: str, verb: str, path: str, real: str, kind: str, context: Context) -> None:
    """Ask the person to approve a read outside of the workspace, or of a secret.

    Raises:
        Denied: the read is not approved.
    """
    root = context.workspace.root
    if kind in _REASONS:
        why = kind
    elif kind != OUTSIDE:
        why = f"a secret: {kind}"
    else:
        why = f"outside of the workspace {root}" if root else "outside of a workspace: the conversation began in /"
    named = real if real and real == path else f"{real or 'a file'} (asked for as {path})"
    scope = f"{verb} {real or path}"
    no = await check_approval(
        tool, f"{verb} {named}, {why}", context,
        scope=scope, always=kind != OUTSIDE, stays=not context.workspace.is_machine,
    )  # fmt: skip
    if no is not None:
        raise ReadDenied(no.message)


async def ask_for_folders(tool: str, version: Version, context: Context) -> None:
    """Ask the person to approve a run of a skill that was granted a folder of this machine with secrets in it.

    Raises:
        Denied: the run is not approved.
    """
    from hermes_exec_agent.skills.run.preconditions import read_folders

    for folder in read_folders(version):
        source, secret = await asyncio.to_thread(_look_below, folder.source)
        if secret:
            what = f"let {version.name} {version.number} read {source}, in which is a secret: {secret}"
            if (no := await check_approval(tool, what, context, scope=what, always=True)) is not None:
                raise ReadDenied(no.message)


def _look_below(folder: str) -> tuple[str, str]:
    real = os.path.realpath(folder)
    return real, secret_below(real, _ours())


def limits_for(context: Context) -> dict[str, object]:
    """Return the limits for programs that walk folders of the target: home, own state, kept outputs and workspace."""
    workspace = context.workspace
    return {"home": workspace.home, "ours": _ours(), "kept": workspace.kept, "root": workspace.root}


async def _other_name(where: ResolvedPath, context: Context) -> str:
    """Check whether a file with several names (hard links) is a secret by another one."""
    try:
        payload = json.dumps({**limits_for(context), "identity": where.identity})
        result = await context.terminal.run(
            build_argv(context.terminal, "linked", "-I", "-S"), stdin=payload, timeout=_LIMIT_S
        )
        if result.ok and result.stdout_text.strip() == "no":
            return ""
        known = result.ok and result.stdout_text.strip() == "yes"
    except HermesError:
        known = False
    return _ALIAS if known else _ALIASES


async def _resolve_plainly(path: str, context: Context) -> ResolvedPath:
    """Resolve a path with the programs of a target without a guest.

    Raises:
        TransferError: it cannot be read.
    """
    from hermes_exec.files import ResolvedPath

    result = await context.terminal.run(["sh", "-c", _RESOLVE, "sh", path], timeout=_LIMIT_S)
    real, _, rest = result.stdout.partition(b"\0")
    links, _, mounts = rest.partition(b"\0")
    if not result.ok:
        await context.terminal.read(path)  # raises the error
    if not result.ok or not real.startswith(b"/") or not links.isdigit():
        return ResolvedPath("", "", 1, "")
    return ResolvedPath(os.fsdecode(real), os.fsdecode(source(real, mounts.splitlines())), int(links), "")


def _ours() -> tuple[str, ...]:
    """Return the folders of our own state on this machine, which a target may share."""
    return _state_folders(*(os.environ.get(name, "") for name in _VARIABLES))


@cache
def _state_folders(conversations: str, *_: str) -> tuple[str, ...]:
    from hermes_exec.config.paths import config_folder, state_folder
    from hermes_exec_agent.skills.registry.home import default_home

    registry = default_home()
    folders = [state_folder(os.environ), config_folder(os.environ), registry.folder, registry.keys]
    chosen = [conversations] if conversations else []
    return tuple(dict.fromkeys(os.path.realpath(each) for each in [*map(str, folders), *chosen]))
