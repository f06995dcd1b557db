"""Artifacts of a Harbor trial: files of the agent's container that are kept, and that a separate verifier gets."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import make_private_folder, to_printable, write_private
from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.formats.grading import STEP_S
from hermes_exec_agent.batch.formats.harbor_spec import PUBLISHED, ArtifactSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec import Terminal

MANIFEST = "manifest.json"
_LARGEST = 64 << 20
"""Bytes of one artifact."""
_LINE = 200


class _TooLarge(HermesError):
    """An artifact has more bytes than are kept."""


@dataclass(frozen=True, slots=True)
class Artifacts:
    """The artifacts of one step, in a folder of the run."""

    folder: Path
    entries: Sequence[ArtifactSpec]
    clean: Callable[[str], str]
    """Removes secrets from text."""

    @classmethod
    def of(cls, folder: Path, entries: Sequence[ArtifactSpec], clean: Callable[[str], str]) -> Artifacts:
        """Return artifacts with the folder that is always one."""
        has_published = any(each.source.rstrip("/") == PUBLISHED for each in entries)
        first = () if has_published else (ArtifactSpec(source=PUBLISHED),)
        return cls(folder, (*first, *entries), clean)

    def _path(self, entry: ArtifactSpec) -> Path:
        """Return where an artifact is kept; its parts were checked when the task was read."""
        return self.folder / (entry.destination or entry.source).lstrip("/")

    async def collect(self, root: Terminal) -> None:
        """Copy the artifacts that exist, and write which ones did; a missing one is not a failure.

        Raises:
            HermesError: the container failed.
            OSError: they cannot be written.
        """
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
        found: list[dict[str, Any]] = []
        for entry in self.entries:
            path = self._path(entry)
            status, detail = "missing", ""
            kind = await _find_kind(root, entry.source)
            if kind == "folder" and not await _has_content(root, entry.source):
                status = "empty"
            elif path.exists() or any(each.is_file() for each in path.parents if each.is_relative_to(self.folder)):
                status = "skipped"
            elif kind:
                status, detail = await self._download(root, entry, path)
            record = {"source": entry.source, "destination": str(path.relative_to(self.folder)), "status": status}
            found.append({**record, **({"detail": detail} if detail else {})})
        if any(each["status"] not in ("missing", "empty") for each in found):
            await asyncio.to_thread(make_private_folder, self.folder)
            await asyncio.to_thread(write_private, self.folder / MANIFEST, json.dumps(found, indent=1).encode())

    async def _download(self, root: Terminal, entry: ArtifactSpec, path: Path) -> tuple[str, str]:
        await asyncio.to_thread(make_private_folder, path.parent)
        try:
            await root.download(entry.source, path, links="skip", ignore=entry.exclude, progress=_check_size)
        except _TooLarge as error:
            await asyncio.to_thread(_remove, path)
            return "failed", str(error)
        except HermesError as error:
            if not await _find_kind(root, entry.source):
                return "missing", ""
            await asyncio.to_thread(_remove, path)
            return "failed", to_printable(str(error))[:_LINE]
        await asyncio.to_thread(self._clean_files, path)
        return "ok", ""

    def _clean_files(self, path: Path) -> None:
        """Remove the secrets that a task may read from its artifacts."""
        for file in [path] if path.is_file() else path.rglob("*"):
            if file.is_symlink() or not file.is_file():
                continue
            text = file.read_bytes().decode("utf-8", "surrogateescape")
            if (cleaned := self.clean(text)) != text:
                file.write_bytes(cleaned.encode("utf-8", "surrogateescape"))

    async def restore(self, root: Terminal) -> None:
        """Copy the artifacts into a container for tests, to the paths that they had.

        Raises:
            HermesError: the container failed.
        """
        for entry in self.entries:
            path = self._path(entry)
            if not path.exists():
                continue
            target = entry.source.rstrip("/")
            parent = str(PurePosixPath(target).parent)
            await root.run(["mkdir", "-p", "--", parent], cwd="/", timeout=STEP_S)
            await root.upload(path, target, links="skip")
            await root.run(["chmod", "-R", "a+rwX", "--", target], cwd="/", timeout=STEP_S)


def _check_size(done: int, *_: int) -> None:
    if done > _LARGEST:
        raise _TooLarge(f"it has more than {_LARGEST >> 20} MiB")


async def _find_kind(root: Terminal, path: str) -> str:
    """Return whether a path is a ``file`` or a ``folder``; empty if it is neither, or a link."""
    script = '[ -L "$1" ] || { [ -d "$1" ] && echo folder; [ -f "$1" ] && echo file; }; true'
    done = await root.run(["/bin/sh", "-c", script, "sh", path], cwd="/", timeout=STEP_S)
    return done.stdout_text.strip()


async def _has_content(root: Terminal, path: str) -> bool:
    done = await root.run(["/bin/sh", "-c", 'ls -A -- "$1" | head -c 1', "sh", path], cwd="/", timeout=STEP_S)
    return bool(done.stdout)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
