"""Find what the commands of a turn change in a folder outside of a git work tree, by a snapshot of the whole target.

The snapshot lives until the end of the turn: then the changed files are looked up in a copy that is opened from it, and
their earlier contents are kept in the target like all others.
"""

from __future__ import annotations

import logging
import os
import posixpath
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, Unsupported
from hermes_exec.terminal.copies import TargetCopy
from hermes_exec_agent.tools import file_scripts
from hermes_exec_agent.tools.file_states import FileChange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hermes_exec import Terminal

    Keep = Callable[..., Awaitable[tuple[str, list[FileChange]]]]
    """`keep_files`."""

_log = logging.getLogger("hermes_exec.agent")
COPIED = frozenset({"docker"})
"""Kinds of targets with snapshots that take a second and cost nothing; Modal and Daytona store and bill them."""
_LIMIT_S = 10.0
_MOST_FILES = 2000
_MOST_BYTES = 256 << 20
"""Bytes of earlier contents of one turn."""
_MOST_OUTPUT = 16 << 20
_REASONS = {
    3: "the folder does not exist", 4: "the root folder is not watched", 5: "other file systems are mounted there",
    7: "not all of its files can be listed", 8: "the find of this target cannot compare times",
}  # fmt: skip


class WatchedFolder:
    """A folder, and a snapshot of its target from the beginning of the turn."""

    def __init__(self, terminal: Terminal, top: str, id: str, copy: TargetCopy) -> None:
        """``top`` is the physical path of the folder, and ``id`` names its lists in the target."""
        self._terminal = terminal
        self._id = id
        self._copy = copy
        self.top = top
        self.event = 0
        """The number of the event that records the beginning."""

    @classmethod
    async def begin(cls, terminal: Terminal, folder: str, id: str) -> WatchedFolder:
        """List the files of a folder, and take the snapshot.

        Raises:
            HermesError: the folder cannot be watched; the message says why.
        """
        (top,) = await _run(terminal, file_scripts.BEGIN_LIST, folder, id)
        return cls(terminal, top, id, await TargetCopy.take(terminal))

    def contains(self, folder: str) -> bool:
        """Whether a folder is this one or in it."""
        return posixpath.normpath(folder) == self.top or posixpath.normpath(folder).startswith(f"{self.top}/")

    async def list_changes(self, keep: Keep) -> list[FileChange]:
        """Return the files that came, went or changed since the beginning, with their states then and now.

        Raises:
            HermesError: they cannot be compared; the message says why.
            ValueError: a state of a file is invalid.
        """
        paths = await _run(self._terminal, file_scripts.END_LIST, self.top, self._id)
        if len(paths) > _MOST_FILES:
            raise Unsupported(f"more than {_MOST_FILES:,} files changed")
        if not paths:
            return []
        blobs, after = await keep(self._terminal, paths, follow=False)
        async with self._copy.open() as copy:
            earlier, before = await keep(copy, paths, follow=False)
            left = _MOST_BYTES
            for digest in dict.fromkeys(each.after.digest for each in before if each.after.digest):
                name = digest.partition(":")[2]
                argv = ["cat", posixpath.join(earlier, name)]  # its size is that which the target names, or any other
                content = await copy.run(argv, timeout=_LIMIT_S, check=True, max_output=max(left, 1))
                left -= len(content.stdout)
                if content.truncated or left < 0:
                    raise Unsupported(f"more than {_MOST_BYTES >> 20} MiB changed")
                await self._terminal.write(posixpath.join(blobs, name), content.stdout)
        pairs = zip(paths, before, after, strict=True)
        changes = [FileChange(path, then.before, now.after) for path, then, now in pairs]
        return [each for each in changes if each.before != each.after]

    async def end(self) -> None:
        """Remove the snapshot."""
        try:
            await self._copy.remove()
        except HermesError as error:
            _log.warning("a snapshot of %s was not removed: %s", self._terminal.target, error)


async def _run(terminal: Terminal, script: str, *argv: str) -> Sequence[str]:
    """Run a script and return the fields that it prints.

    Raises:
        Unsupported: it failed, with the reason.
        HermesError: the target failed.
    """
    result = await terminal.run(["sh", "-c", script, "sh", *argv], timeout=_LIMIT_S, max_output=_MOST_OUTPUT)
    if result.timed_out:
        raise Unsupported(f"listing its files takes more than {_LIMIT_S:g} s")
    if not result.ok or result.truncated:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = _REASONS.get(result.exit_code or 0) or (lines[-1] if lines else result.reason)
        raise Unsupported(reason)
    return [os.fsdecode(field) for field in result.stdout.split(b"\0")[:-1]]
