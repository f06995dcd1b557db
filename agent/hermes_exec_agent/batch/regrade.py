"""Score recorded trials by a function of the person's, without running them again."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.batch.reward_function import load_function, read_reward, to_input
from hermes_exec_agent.batch.trajectories.reading import Selection, TrajectoryReader, find_end
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.run_state import RunState

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FOLDER = "rewards"
_LINE = 300


class Regrade:
    """One regrade of a run; its rewards are in a file of their own, which is never replaced."""

    def __init__(
        self, run: RunFolder, state: RunState, function: str, name: str | None, clean: Callable[[str], str]
    ) -> None:
        """``function`` is ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``; ``clean`` removes secrets from texts.

        Raises:
            UsageError: there is no such function, or the name is taken.
        """
        self._run = run
        self._state = state
        self._function = load_function(function)
        self._clean = clean
        self.name = name or function.rpartition(":")[2]
        self.count = 0
        """Trials with a reward."""
        self._sum = 0.0
        self._path = _find_path(run, self.name)
        if self._path.exists():
            raise UsageError(f"rewards named {self.name} are there already", remedy="another --name")

    @property
    def mean(self) -> float | None:
        """The mean of the rewards; None without any."""
        return self._sum / self.count if self.count else None

    def run(self) -> dict[str, str]:
        """Score all trials whose agent has worked; return why the function failed, by key.

        Raises:
            HermesError: a log cannot be read.
            OSError: the rewards cannot be written.
        """
        failed: dict[str, str] = {}
        records: list[dict[str, Any]] = []
        selection = Selection(scripted=True, states=frozenset({"graded", "ungraded"}))
        with TrajectoryReader(self._run, self._state, selection, self._clean) as reader:
            for trajectory in reader.read():
                record: dict[str, Any] = {"key": trajectory.trial.key, "attempt": trajectory.result["attempt"]}
                try:
                    result = {**trajectory.result, "end": find_end(trajectory.result)}
                    found = self._function(to_input(trajectory.trial, result, trajectory.conversation))
                    reward, parts = read_reward(found)
                except (Exception, SystemExit) as error:  # noqa: BLE001  it is the person's code
                    why = flatten(f"{type(error).__name__}: {error}", _LINE)
                    failed[trajectory.trial.key] = why
                    records.append({**record, "reward": None, "error": self._clean(why)})
                    continue
                self.count += 1
                self._sum += reward
                records.append({**record, "reward": reward, **({"parts": parts} if parts else {})})
        self._write(records)
        return failed

    def _write(self, records: list[dict[str, Any]]) -> None:
        """Write the rewards whole; another program that took the name meanwhile keeps it."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        new = self._path.with_suffix(f".{os.getpid()}.new")
        with new.open("x", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(each)}\n" for each in records)
        try:
            os.link(new, self._path)
        except FileExistsError:
            raise UsageError(f"rewards named {self.name} are there already", remedy="another --name") from None
        finally:
            new.unlink()


def _find_path(run: RunFolder, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{to_printable(name)}: it is not a name of rewards", remedy="letters, digits, '.', '_' and '-', up to 64"
        )
    return run.path / _FOLDER / f"{name}.jsonl"


def apply_rewards(run: RunFolder, state: RunState, name: str) -> None:
    """Replace the rewards of a state by those of a regrade; a trial without one is not graded.

    Raises:
        UsageError: there are no rewards of that name.
    """
    path = _find_path(run, name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        known = ", ".join(sorted(each.stem for each in (run.path / _FOLDER).glob("*.jsonl")))
        raise UsageError(f"there are no rewards named {name}", remedy=known or "hermes-exec batch regrade") from None
    rewards = {(each["key"], each["attempt"]): each["reward"] for each in map(json.loads, lines)}
    for trial in state.trials.values():
        if (accepted := trial.accepted) is not None:
            reward = rewards.get((accepted["key"], accepted["attempt"]))
            failure = None if reward is not None else accepted["failure"] or "check"
            graded = accepted["state"] if reward is not None else "ungraded"
            trial.accepted = {**accepted, "reward": reward, "failure": failure, "state": graded}
