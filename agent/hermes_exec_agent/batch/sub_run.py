"""The part of a run that a shard without the folder of the run gets, and the import of what it found.

The shard works in a folder of its own: attempts that are claimed for it, their tasks, and a part of the caps. What
comes back was in the reach of agents, so only results of those attempts are taken, and only events that no other
process acts on.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import make_private_folder, write_private
from hermes_exec_agent.batch.claims import find_next
from hermes_exec_agent.batch.ledger import Amounts, Ledger, read_caps
from hermes_exec_agent.batch.shard_log import NAME as LOG
from hermes_exec_agent.batch.tasks import refuse_constant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hermes_exec_agent.batch.engine import ShardOrder
    from hermes_exec_agent.batch.run_folder import Epoch, RunFolder
    from hermes_exec_agent.batch.settings import Caps

ASSIGNED = "assigned.json"
"""In the folder of a shard: the attempts that are claimed for it."""
_FOLDERS = ("epochs", "control", "shards", "claims", "results", "ledger", "files", "scripts", "patches")
_EVENTS = frozenset({"running", "reserved", "settled", "returned", "ended", "full"})
_FIELDS = frozenset({
    "key", "attempt", "task", "target", "model", "sample", "state", "failure", "reason", "reward", "check", "outcome",
    "steps", "calls", "conversation", "usage", "began", "seconds", "shard", "epoch", "final",
})  # fmt: skip
"""Of a result."""
_STATES = frozenset({"graded", "ungraded", "failed", "interrupted", "capped"})
_LONGEST = 4 << 20
"""Bytes of a result, or of a line of a log."""


@dataclass(frozen=True, slots=True)
class SubRun:
    """A part of a run for one shard."""

    run: RunFolder
    epoch: Epoch
    order: ShardOrder
    attempts: Mapping[str, int]
    """The numbers of the attempts that are claimed, by the keys of trials."""

    @property
    def has_other_targets(self) -> bool:
        """Whether a target outlives the machine of the shard."""
        return any(self.run.find_trial(key).target != "local" for key in self.attempts)

    def draw_caps(self) -> Caps | None:
        """Return the caps of the shard: an equal part of what is left; None if nothing is left of one.

        Raises:
            OSError: the grant cannot be written.
        """
        caps = self.epoch.settings.caps
        parts = max(self.epoch.settings.shards, 1)
        grant = Ledger(self.run.path / "ledger", read_caps(caps)).draw_part(self.order.id, parts)
        money = None if caps.money is None else grant.to_dollars()
        tokens = None if caps.tokens is None else grant.tokens
        steps = None if caps.steps is None else grant.steps
        gpu_hours = None if caps.gpu_hours is None else grant.to_gpu_hours()
        found = {"money": money, "tokens": tokens, "steps": steps, "gpu_hours": gpu_hours}
        return None if 0 in found.values() else caps.model_copy(update=found)

    def write(self, folder: Path, caps: Caps) -> None:
        """Write the folder that the shard gets.

        Raises:
            OSError: it cannot be written.
        """
        make_private_folder(folder)
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700)
        source, number = self.run.path, self.epoch.number
        for name in ("run.json", "tasks.jsonl"):
            shutil.copy(source / name, folder / name)
        shutil.copytree(source / "scripts", folder / "scripts", dirs_exist_ok=True)
        for task in {self.run.find_trial(key).task.id for key in self.attempts}:
            if (source / "files" / task).is_dir():
                shutil.copytree(source / "files" / task, folder / "files" / task, symlinks=True)
        settings = self.epoch.settings.model_copy(update={"caps": caps, "concurrency": self.order.slots})
        begun = json.loads((source / f"epochs/{number}.json").read_bytes())
        write_private(
            folder / f"epochs/{number}.json",
            json.dumps(begun | {"settings": settings.model_dump(mode="json")}).encode(),
        )
        todo = {key: self.epoch.todo[key] for key in self.attempts}
        write_private(folder / f"epochs/{number}.todo", json.dumps(todo).encode())
        write_private(folder / f"epochs/{number}.heartbeat", b"")
        make_private_folder(folder / "shards" / self.order.id)
        write_private(folder / "shards" / self.order.id / ASSIGNED, json.dumps(dict(self.attempts)).encode())

    def take(self, folder: Path) -> int:
        """Take over the results, the patches, the artifacts and the log of a shard; return how many results are new.

        Raises:
            HermesError, OSError: they cannot be written.
        """
        own, there = self.run.shard(self.order.id), folder / "shards" / self.order.id
        for name in ("conversations.sqlite", "output.txt"):
            if (there / name).is_file() and not (there / name).is_symlink():
                (there / name).replace(own / name)
        results = dict(self._read_results(folder))
        for key in results:
            name = f"{key}.{self.attempts[key]}"
            _take_file(folder / "patches" / f"{name}.diff", self.run.path / "patches" / f"{name}.diff")
            if (folder / "artifacts" / name).is_dir() and not (folder / "artifacts" / name).is_symlink():
                make_private_folder(self.run.path / "artifacts")
                shutil.rmtree(self.run.path / "artifacts" / name, ignore_errors=True)
                (folder / "artifacts" / name).replace(self.run.path / "artifacts" / name)
        new = sum(self.run.write_result(key, self.attempts[key], record) for key, record in results.items())
        lines = (json.dumps(event, separators=(",", ":")) + "\n" for event in self._read_events(there, results))
        write_private(own / LOG, "".join(lines).encode())
        return new

    def _read_results(self, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        for key, number in self.attempts.items():
            record = _read_record(folder / "results" / key[:2] / f"{key}.{number}")
            trial = self.run.find_trial(key)
            expected = {
                "key": key, "attempt": number, "task": trial.task.id, "target": trial.target, "model": trial.model,
                "sample": trial.sample, "shard": self.order.id, "epoch": self.epoch.number,
            }  # fmt: skip
            if record is None or record.keys() != _FIELDS or record["state"] not in _STATES:
                continue
            if all(record[name] == value for name, value in expected.items()):
                yield key, record

    def _read_events(self, there: Path, results: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the events that others may read: an end is that of a result, and targets are left out."""
        path = there / LOG
        if path.is_symlink() or not path.is_file():
            return
        for line in path.read_bytes().splitlines():
            event = _parse(line)
            if event is None:
                continue
            if event.get("event") == "ended_attempt":
                if (found := results.get(str(event.get("key")))) is not None:
                    yield {"event": "ended_attempt", "at": time.time(), **found}
            elif event.get("event") in _EVENTS and _has_amounts(event):
                yield event


def claim_part(run: RunFolder, epoch: Epoch, shard: str, most: int) -> dict[str, int]:
    """Claim attempts for a shard, at most so many.

    Raises:
        HermesError: a claim cannot be written.
    """
    found: dict[str, int] = {}
    for trial in run.trials:
        if len(found) == most:
            break
        if trial.key in epoch.todo:
            number, _ = find_next(run, epoch, trial.key)
            content = {"shard": shard, "epoch": epoch.number}
            if number is not None and run.claim(trial.key, number, content):
                found[trial.key] = number
    return found


def count_claimable(run: RunFolder, epoch: Epoch) -> int:
    """Return how many trials have an attempt that is not claimed yet."""
    return sum(find_next(run, epoch, key)[0] is not None for key in epoch.todo)


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        if path.is_symlink() or path.stat().st_size > _LONGEST:
            return None
        return _parse(path.read_bytes())
    except OSError:
        return None


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data, parse_constant=refuse_constant) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _has_amounts(event: dict[str, Any]) -> bool:
    try:
        for each in (event, event.get("reserved") or {}):
            amounts = Amounts.from_record(each)
            if not Amounts().fits(amounts):
                return False
    except (AttributeError, TypeError, ValueError, OverflowError):
        return False
    return True


def _take_file(source: Path, target: Path) -> None:
    if source.is_file() and not source.is_symlink():
        source.replace(target)
