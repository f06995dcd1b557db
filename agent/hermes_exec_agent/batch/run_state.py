"""The state of a run, read from the logs of its shards and from its results."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.config.paths import to_printable
from hermes_exec_agent.batch.run_folder import UNBEGUN, RunChanged
from hermes_exec_agent.batch.shard_log import LogTail

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.trials import Trial

Only = Literal["failed", "lost", "ungraded"]
ONLY: tuple[Only, ...] = ("failed", "lost", "ungraded")


_EVENTS = ("claimed", "ended_attempt", "full")


@dataclass(slots=True)
class TrialState:
    """What is known about one trial."""

    claimed: int = 0
    """The number of its latest attempt."""
    ended: int = 0
    """The number of the latest attempt with a result."""
    counted: int = 0
    """The attempts whose results are counted, as bits."""
    last: dict[str, Any] | None = None
    """The result of that attempt."""
    accepted: dict[str, Any] | None = None
    """The latest final result, which is the trial's."""

    unbegun: list[int] = field(default_factory=list[int])
    """The attempts that never began."""

    @property
    def is_running(self) -> bool:
        """Whether an attempt has no result yet."""
        return self.claimed > self.ended

    def add(self, record: dict[str, Any]) -> None:
        """Take the result of an attempt."""
        number = int(record["attempt"])
        self.claimed = max(self.claimed, number)
        if record.get(UNBEGUN):
            self.unbegun.append(number)
        if number >= self.ended:
            self.ended, self.last = number, record
            if record.get("final"):
                self.accepted = record


@dataclass(frozen=True, slots=True)
class Summary:
    """A run at one moment."""

    total: int
    done: int
    """Trials with a final result."""
    running: int
    waiting: int
    graded: int
    reward: float | None
    """The mean of those that are graded."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Trials that are not solved, by what failed."""
    attempts: int = 0
    """Results of all attempts that began."""
    prompt: int = 0
    completion: int = 0
    cost: float | None = None
    seconds: float = 0.0
    """That the run has been running."""
    left_s: float | None = None
    """Seconds left, as estimated from this command."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields for programs."""
        return {name: getattr(self, name) for name in self.__slots__}


@contextlib.contextmanager
def _refuse_damage(path: str) -> Generator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunChanged(
            f"{path}: it is damaged: {type(error).__name__}: {to_printable(str(error))}", remedy="begin another run"
        ) from None


class RunState:
    """The state of a run; `update` reads what is new."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._tails: dict[str, LogTail] = {}
        self.trials: dict[str, TrialState] = {key: TrialState() for key in run.keys}
        self.full = ""
        """Why a shard began no more trials, if the disk is full."""
        self._usage = Counter[str]()
        self._cost: float | None = None
        self._attempts = 0
        self._began = time.monotonic()
        self._done_before: int | None = None

    def update(self) -> None:
        """Read the events since the last call.

        Raises:
            RunChanged: one of them is not of the form that shards write.
        """
        for folder in sorted((self._run.path / "shards").iterdir()):
            tail = self._tails.setdefault(folder.name, LogTail(folder, *_EVENTS))
            with _refuse_damage(f"shards/{folder.name}/log.jsonl"):
                for event in tail.read():
                    self._take(event)
        if self._done_before is None:
            self._done_before = self._count_done()

    def reconcile(self) -> None:
        """Read the claims and results whose events were not logged, because their process was killed.

        Raises:
            RunChanged: one of them is not of the form that shards write.
        """
        for key, number in self._run.scan("claims"):
            if key in self.trials:
                self.trials[key].claimed = max(self.trials[key].claimed, number)
        for key, number in self._run.scan("results"):
            if key in self.trials and number > self.trials[key].ended:
                record = self._run.read_result(key, number)
                if record is not None:
                    with _refuse_damage(f"results/{key[:2]}/{key}.{number}"):
                        self._add(record)

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "claimed":
                state = self.trials.get(event["key"])
                if state is not None:
                    state.claimed = max(state.claimed, int(event["attempt"]))
            case "ended_attempt":
                self._add(event)
            case "full":
                self.full = str(event["reason"])
            case _:
                pass

    def _add(self, record: dict[str, Any]) -> None:
        state = self.trials.get(record["key"])
        bit = 1 << int(record["attempt"])
        if state is None or state.counted & bit:
            return
        if record["reward"] is not None and not math.isfinite(record["reward"]):
            raise ValueError("the reward is not a finite number")
        if not all(isinstance(record[name], str | None) for name in ("state", "failure")):
            raise TypeError("its end is not text")
        state.counted |= bit
        state.add(record)
        self._attempts += not record.get(UNBEGUN)
        if usage := record.get("usage"):
            self._usage["prompt"] += int(usage["prompt"])
            self._usage["completion"] += int(usage["completion"])
            if usage["cost"] is not None:
                self._cost = (self._cost or 0.0) + float(usage["cost"])

    def _count_done(self) -> int:
        return sum(state.accepted is not None for state in self.trials.values())

    def find_todo(self, only: Only | None = None) -> dict[str, int]:
        """Return the trials to do, each with the number of its attempts so far."""
        todo: dict[str, int] = {}
        for key, state in self.trials.items():
            if only is None:
                chosen = state.accepted is None
            elif only == "lost":
                chosen = state.last is not None and state.last["state"] == "lost"
            else:
                chosen = state.accepted is not None and state.accepted["state"] == only
            if chosen:
                todo[key] = state.claimed
        return todo

    def results(self) -> Iterator[tuple[Trial, TrialState]]:
        """Return the trials in their order, with their states.

        Raises:
            RunChanged: the tasks are not those of the run.
        """
        if self.trials.keys() != {trial.key for trial in self._run.trials}:
            self._run.check()
        for trial in self._run.trials:
            yield trial, self.trials[trial.key]

    def summarize(self) -> Summary:
        """Return a summary."""
        states = list(self.trials.values())
        done = [state.accepted for state in states if state.accepted is not None]
        rewards = [float(each["reward"]) for each in done if each["reward"] is not None]
        running = sum(state.accepted is None and state.is_running for state in states)
        failures = Counter(str(each["failure"] or each["state"]) for each in done if not each["reward"])
        for state in states:
            if state.accepted is None and not state.is_running and state.last is not None:
                failures[str(state.last["failure"] or state.last["state"])] += 1
        fresh = len(done) - (self._done_before or 0)
        elapsed = time.monotonic() - self._began
        return Summary(
            total=len(states),
            done=len(done),
            running=running,
            waiting=len(states) - len(done) - running,
            graded=len(rewards),
            reward=sum(rewards) / len(rewards) if rewards else None,
            failures=dict(sorted(failures.items())),
            attempts=self._attempts,
            prompt=self._usage["prompt"],
            completion=self._usage["completion"],
            cost=self._cost,
            seconds=round(self._run.seconds_used(), 1),
            left_s=round(elapsed / fresh * (len(states) - len(done)), 1) if fresh > 0 else None,
        )
