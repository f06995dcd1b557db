"""The part of a run that a shard without the folder of the run gets, and the import of what it found.

The shard works in a folder of its own: attempts that are claimed for it, their tasks, and a part of the caps. What
comes back was in the reach of agents, so only results of those attempts are taken, and only events that no other
process acts on.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.load import load_settings
from hermes_exec.config.overrides import PREFIX
from hermes_exec.config.paths import make_private_folder, write_private
from hermes_exec.config.targets import parse_target
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_agent.batch.claims import count_unbegun, find_next
from hermes_exec_agent.batch.ledger import Ledger, read_caps, read_trial_caps
from hermes_exec_agent.batch.run_folder import BEGUN
from hermes_exec_agent.batch.sandbox_results import read_events, read_result
from hermes_exec_agent.batch.shard_log import NAME as LOG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.batch.engine import ShardOrder
    from hermes_exec_agent.batch.run_folder import Epoch, RunFolder
    from hermes_exec_agent.batch.settings import Caps

UNPROTECTED = "unprotected"
"""The key of a result that an agent could have written."""
ASSIGNED = "assigned.json"
"""In the folder of a shard: the attempts that are claimed for it."""
_FOLDERS = ("epochs", "control", "shards", "claims", "results", "ledger", "files", "scripts", "patches")
_OWN_FILES = frozenset({LOG, "output.txt", "conversations.sqlite"})
"""Files of a shard that it sends."""


@dataclass(frozen=True, slots=True)
class SubRun:
    """A part of a run for one shard."""

    run: RunFolder
    epoch: Epoch
    order: ShardOrder
    attempts: Mapping[str, int]
    """The numbers of the attempts that are claimed, by the keys of trials."""
    unprotected: bool = False
    """Whether one of its agents can write the results of all its attempts."""

    @property
    def has_other_targets(self) -> bool:
        """Whether a target outlives the machine of the shard."""
        return any(self.run.find_trial(key).target != "local" for key in self.attempts)

    def draw_caps(self) -> Caps | None:
        """Return the caps of the shard: an equal part of what is left; None if nothing is left of one.

        It is at most what its trials may use, as a lost shard's part counts in full.

        Raises:
            OSError: the grant cannot be written.
        """
        caps = self.epoch.settings.caps
        parts = max(self.epoch.settings.shards, 1)
        most = read_trial_caps(caps) * len(self.attempts)
        grant = Ledger(self.run.path / "ledger", read_caps(caps)).draw_part(self.order.id, parts, most)
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
        todo = {key: self._count_base(key, number) for key, number in self.attempts.items()}
        write_private(folder / f"epochs/{number}.todo", json.dumps(todo).encode())
        write_private(folder / f"epochs/{number}.heartbeat", b"")
        make_private_folder(folder / "shards" / self.order.id)
        write_private(folder / "shards" / self.order.id / ASSIGNED, json.dumps(dict(self.attempts)).encode())

    def begin(self) -> None:
        """Record that attempts may begin from now on.

        Raises:
            PlaceUnavailable: another command runs the batch, and has settled them.
        """
        if self.run.last_epoch() != self.epoch.number:
            raise PlaceUnavailable("another command runs this batch")
        (self.run.shard(self.order.id) / BEGUN).touch(mode=0o600)

    def _count_base(self, key: str, number: int) -> int:
        """Return the attempts at a trial that do not count as tries of this epoch."""
        base = self.epoch.todo[key]
        return base + count_unbegun(self.run, key, range(base + 1, number))

    def list_taken(self) -> list[str]:
        """Return the names of the results that were taken."""
        return [f"{key}.{number}" for key, number in self.attempts.items()
                if self.run.read_result(key, number) is not None]  # fmt: skip

    def is_wanted(self, name: str) -> bool:
        """Whether a file of the shard's folder is taken: one of its own, or of its attempts; ``name`` has no ``..``."""
        match name.split("/"):
            case ["shards", self.order.id, file]:
                return file in _OWN_FILES
            case ["results", _, file]:
                return self._is_own(file)
            case ["patches", file]:
                return file.endswith(".diff") and self._is_own(file.removesuffix(".diff"))
            case ["artifacts", folder, _, *_]:
                return self._is_own(folder)
            case _:
                return False

    def _is_own(self, name: str) -> bool:
        key, _, number = name.partition(".")
        return key in self.attempts and number == str(self.attempts[key])

    def take(self, folder: Path) -> int:
        """Take over the results, the patches, the artifacts and the log of a shard; return how many results are new.

        The first result of an attempt is taken with its files; later ones are left.

        Raises:
            HermesError, OSError: they cannot be written.
        """
        own, there = self.run.shard(self.order.id), folder / "shards" / self.order.id
        for name in _OWN_FILES - {LOG}:
            _take_file(there / name, own / name)
        marks = {UNPROTECTED: True} if self.unprotected else {}
        new = sum(self._take_result(folder, key, number, marks) for key, number in self.attempts.items())
        lines = (json.dumps(event, separators=(",", ":")) + "\n" for event in self._list_events(there))
        write_private(own / LOG, "".join(lines).encode())
        return new

    def _take_result(self, folder: Path, key: str, number: int, marks: Mapping[str, bool]) -> bool:
        if self.run.read_result(key, number) is not None:
            return False
        trial = self.run.find_trial(key)
        expected = {
            "key": key, "attempt": number, "task": trial.task.id, "target": trial.target, "model": trial.model,
            "sample": trial.sample, "shard": self.order.id, "epoch": self.epoch.number,
        }  # fmt: skip
        name = f"{key}.{number}"
        record = read_result(folder / "results" / key[:2] / name, expected)
        if record is None:
            return False
        _take_file(folder / "patches" / f"{name}.diff", self.run.path / "patches" / f"{name}.diff")
        if (folder / "artifacts" / name).is_dir():
            make_private_folder(self.run.path / "artifacts")
            shutil.rmtree(self.run.path / "artifacts" / name, ignore_errors=True)
            (folder / "artifacts" / name).replace(self.run.path / "artifacts" / name)
        return self.run.write_result(key, number, {**record, **marks})

    def _list_events(self, there: Path) -> Iterator[dict[str, Any]]:
        """Yield the events that are kept; an end is that of the result that was taken.

        Those of an earlier call come first and unchanged, as others have read them.
        """
        for event in read_events(there / LOG):
            if (key := event.get("key")) is None:
                yield event
            elif self.attempts.get(key) == event["attempt"]:
                if event["event"] == "running":
                    yield event
                elif (found := self.run.read_result(key, event["attempt"])) and found["shard"] == self.order.id:
                    yield event | found


def find_unprotected(run: RunFolder, epoch: Epoch, config: str | None) -> frozenset[str]:
    """Return the targets whose agents work on the machine of their shard as its user, and can so write its results.

    Args:
        run: the run.
        epoch: what is done of it.
        config: the settings file of that machine, which names its targets. A name that it has not may be any target.
    """
    if epoch.settings.agent.agent in ("nop", "oracle"):
        return frozenset()
    profiles: Mapping[str, Profile] = {}
    if config:
        profiles = load_settings(cwd=Path("/"), environ={f"{PREFIX}CONFIG": config}).profiles
    targets = {run.find_trial(key).target for key in epoch.todo}
    return frozenset(each for each in targets if _is_unprotected(each, profiles))


def _is_unprotected(target: str, profiles: Mapping[str, Profile]) -> bool:
    try:
        return target == "local" or parse_target(target, profiles).profile.type == "local"
    except ConfigError:
        return True


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


def _take_file(source: Path, target: Path) -> None:
    if source.is_file() and not source.is_symlink():
        source.replace(target)
