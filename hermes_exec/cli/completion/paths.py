"""Completions of paths: files of this machine, and ``TARGET:PATH`` where looking creates nothing."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from hermes_exec.cli.completion.lookup import look_up
from hermes_exec.cli.completion.values import complete_targets
from hermes_exec.cli.remote_path import expand_home, parse_path
from hermes_exec.config.paths import expand_home as expand_local_home
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from hermes_exec.config.plan import Plan
    from hermes_exec.config.targets import Target

_FRESH_S = 20.0
_MOST = 2000
_FREE = frozenset({"local", "ssh"})
"""The types whose targets exist before they are opened."""


def complete_paths(incomplete: str) -> list[str]:
    """Complete a local path, the name of a target, or a path in a target."""
    is_target = ":" in incomplete.partition("/")[0]
    if is_target:
        found = _list_remote(incomplete)
        if found or _names_path(incomplete):  # two lookups that are late would take twice as long
            return found
    targets = [each if each.endswith((":", "/")) else f"{each}:" for each in complete_targets(incomplete)]
    return targets if is_target else targets + list_local(incomplete)


def list_local(incomplete: str) -> list[str]:
    """Return the paths of this machine that begin with ``incomplete``; folders end with a slash."""
    folder, slash, beginning = incomplete.rpartition("/")
    found: list[str] = []
    try:
        with os.scandir(expand_local_home(folder + slash) if slash else ".") as entries:
            for entry in entries:
                if _is_shown(entry.name, beginning):
                    found.append(f"{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}")
                if len(found) >= _MOST:
                    break
    except OSError:
        return []
    return sorted(found)


def _is_shown(name: str, beginning: str) -> bool:
    return name.startswith(beginning) and (beginning.startswith(".") or not name.startswith("."))


def _names_path(text: str) -> bool:
    """Return whether ``TARGET:PATH`` goes beyond the name of the target."""
    try:
        return parse_path(text).path.startswith(("/", "~", "./", "../"))
    except HermesError:
        return False


def _list_remote(incomplete: str) -> list[str]:
    """Return the paths in a target that begin with ``TARGET:PATH``; none if opening the target creates something."""
    try:
        remote = parse_path(incomplete)
    except HermesError:
        return []
    typed = "" if incomplete.endswith(":") else remote.path
    prefix = incomplete[: len(incomplete) - len(typed)]
    folder, slash, beginning = typed.rpartition("/")
    if typed in {"~", ".", ".."}:
        return [f"{incomplete}/"]
    path = folder + slash
    found = look_up(f"{remote.target}:{path}", _FRESH_S, lambda: _list(remote.target, path or "."))
    return [f"{prefix}{path}{name}" for name, _ in found if _is_shown(name, beginning)]


def _list(name: str | None, folder: str) -> list[tuple[str, str]]:
    """List a folder of a target; folders end with a slash."""
    from hermes_exec.cli.open_target import plan_target, read_settings
    from hermes_exec.config.load import resolve

    settings = read_settings()
    if not is_free(resolve(name, settings)):
        return []
    return asyncio.run(_list_planned(plan_target(name, settings=settings), folder))


async def _list_planned(plan: Plan, folder: str) -> list[tuple[str, str]]:
    from hermes_exec.cli.open_target import open_planned

    async with open_planned(plan, audit=False) as terminal:
        entries = await terminal.files.list(await expand_home(terminal, folder))
    return [(os.path.basename(each.path) + ("/" if each.is_folder else ""), "") for each in entries[:_MOST]]  # noqa: PTH119  text


def is_free(target: Target) -> bool:
    """Return whether opening the target creates nothing and asks for nothing, so that a TAB may do it."""
    return all(
        (profile.type in _FREE or bool(profile.attach_field and getattr(profile, profile.attach_field)))
        and not any(source.kind == "command" for source in profile.secrets.values())
        for profile in target.chain
    )
