"""The record of groups: each is written before it is posted, and its outcome after it.

A group without an outcome was being posted when its process ended. The trainer may have it, so it is never posted
again, and counts as unanswered. A task of a round without a group was being worked on when its process ended: its
group is dropped, because the policy that wrote it may be an older one.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import make_private_folder, to_printable, write_private
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.batch.run_folder import link_exclusive
from hermes_exec_agent.file_lock import hold_alone

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

POSTED, UNANSWERED, INTERRUPTED = "posted", "unanswered", "interrupted"


class GroupRecord:
    """The groups of one folder. One process at a time writes it; see `hold`."""

    def __init__(self, path: Path) -> None:
        """``path`` is created by `hold`."""
        self._path = path
        self._next = 1
        self._digests: set[str] = set()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold the folder, and settle what an earlier process left.

        Raises:
            UsageError: another process holds it.
            HermesError: it cannot be written.
        """
        try:
            for name in ("groups", "outcomes", "rounds"):
                make_private_folder(self._path / name)
        except (NotADirectoryError, FileExistsError):
            raise UsageError(f"{to_printable(self._path)}: it is not a folder", remedy="--into another one") from None
        except OSError as error:
            raise HermesError(f"{to_printable(self._path)}: {error.strerror}") from error
        with hold_folder(self._path, "lock", "another process writes it"):
            self._settle()
            yield

    def _settle(self) -> None:
        """Record the groups without an outcome as unanswered, and drop those of interrupted rounds."""
        done: set[tuple[object, object]] = set()
        for number, group in self._read("groups").items():
            self._next = max(self._next, number + 1)
            if digest := group.get("digest"):
                self._digests.add(str(digest))
            done.add((group.get("round"), group.get("task")))
            self.close(number, UNANSWERED, "its process ended")
        for number, path in self._list_rounds():
            record = _read_object(path / "run.json")  # without one, no trial has begun
            tasks, settings = record.get("tasks"), record.get("settings")
            policy = cast("dict[str, Any]", settings).get("policy", "") if isinstance(settings, dict) else ""
            for task in cast("dict[str, Any]", tasks) if isinstance(tasks, dict) else ():
                if (number, task) not in done:
                    self.drop({"task": task, "round": number, "policy": policy}, INTERRUPTED, "its process ended")

    def has(self, digest: str) -> bool:
        """Whether a group with these tokens was recorded before."""
        return digest in self._digests

    def open(self, fields: Mapping[str, Any]) -> int:
        """Record a group before it is posted, and return its number.

        Raises:
            HermesError: it cannot be written.
        """
        number, self._next = self._next, self._next + 1
        try:
            content = json.dumps({**fields, "at": round(time.time(), 3)}, allow_nan=False).encode()
            write_private(self._path / "groups" / f"{number:06}.json", content)
        except OSError as error:
            raise HermesError(f"{to_printable(self._path)}: {error.strerror}") from error
        if digest := fields.get("digest"):
            self._digests.add(str(digest))
        return number

    def close(self, number: int, outcome: str, reason: str = "") -> bool:
        """Record the outcome of a group; return False if it has one.

        Raises:
            HermesError: it cannot be written.
        """
        content = {"outcome": outcome, "reason": reason, "at": round(time.time(), 3)}
        try:
            return link_exclusive(self._path / "outcomes" / f"{number:06}.json", content)
        except OSError as error:
            raise HermesError(f"{to_printable(self._path)}: {error.strerror}") from error

    def drop(self, fields: Mapping[str, Any], kind: str, reason: str) -> None:
        """Record a group that is not posted, with its reason."""
        self.close(self.open(fields), f"dropped: {kind}", reason)

    def next_round(self) -> tuple[int, Path]:
        """Return the number of the next round, from 0 on, and its folder, which does not exist yet."""
        number = max((number for number, _ in self._list_rounds()), default=-1) + 1
        return number, self._path / "rounds" / f"{number:05}"

    def _list_rounds(self) -> list[tuple[int, Path]]:
        paths = (self._path / "rounds").iterdir()
        return sorted((int(path.name), path) for path in paths if path.name.isascii() and path.name.isdigit())

    def count(self) -> Counter[str]:
        """Return how many groups had which outcome; those that are being posted count as ``open``.

        Raises:
            UsageError: it is not the folder of an environment.
        """
        if not (self._path / "groups").is_dir():
            raise UsageError(
                f"{to_printable(self._path)}: it is not the folder of an environment", remedy="that of rl serve"
            )
        outcomes = self._read("outcomes")
        return Counter(str(outcomes.get(number, {}).get("outcome", "open")) for number in self._read("groups"))

    def _read(self, kind: str) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for path in sorted((self._path / kind).glob("[0-9]*.json")):
            if path.stem.isascii() and path.stem.isdigit():
                found[int(path.stem)] = _read_object(path)
        return found


def hold_folder(folder: Path, name: str, why: str) -> AbstractContextManager[int]:
    """Hold a lock in the folder of an environment; yield its descriptor.

    Raises:
        UsageError: another process holds it; ``why`` says what that means.
        HermesError: it cannot be created.
    """
    return hold_alone(folder / name, UsageError(f"{to_printable(folder)}: {why}", remedy="--into another folder"))


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one if it is damaged or missing."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
