"""Runs of batches as a person starts them, and their kills at seeded moments.

Each attempt holds a lock of its trial while its commands run, which the kernel frees when they end, and appends to a
file when they begin. So attempts that overlap leave a trace, and commands that ran twice are counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.batch.run_folder import RunFolder
from hermes_exec_agent.batch.run_state import RunState
from tests.rigs.bounded import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROGRAM = Path(sys.executable).with_name("hermes-exec")
_ENDS_S = 120.0


class BatchPerson:
    """A home folder, and the commands of a person there."""

    def __init__(self, home: Path, **environ: str) -> None:
        self.home = home
        self.environ = {
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            **environ,
        }

    def write_tasks(self, tasks: Iterable[Mapping[str, Any]], name: str = "tasks.jsonl") -> Path:
        """Write a file of tasks."""
        path = self.home / name
        path.write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
        return path

    def write_replies(self, *commands: str, name: str = "replies.jsonl") -> str:
        """Write a script that runs the commands, one a reply; return it as a model."""
        replies = [{"tool_calls": [{"name": "terminal", "arguments": {"command": each}}]} for each in commands]
        text = "".join(f"{json.dumps(each)}\n" for each in [*replies, {"content": "Done."}])
        (self.home / name).write_text(text)
        return f"replay:{name}"

    def run(self, *argv: str, limit_s: float = _ENDS_S) -> subprocess.CompletedProcess[str]:
        """Run ``hermes-exec batch`` to its end."""
        return subprocess.run(
            [PROGRAM, "batch", *argv], env=self.environ, cwd=self.home, capture_output=True, text=True, check=False,
            timeout=limit_s,
        )  # fmt: skip

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start ``hermes-exec batch``."""
        return subprocess.Popen(
            [PROGRAM, "batch", *argv], env=self.environ, cwd=self.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip


def read_state(path: Path) -> RunState:
    """Read the state of a run."""
    state = RunState(RunFolder(path))
    state.update()
    state.reconcile()
    return state


def find_shards(path: Path) -> list[int]:
    """Return the processes of the shards that run."""
    found: list[int] = []
    for owner in path.glob("shards/*/owner.json"):
        if not (owner.parent / "ended").exists():
            try:
                pid = int(json.loads(owner.read_bytes())["pid"])
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (OSError, ValueError):
                continue
            if str(path).encode() in command or command.startswith(b"ray::ShardActor"):
                found.append(pid)
    return found


def find_children(parent: int, word: str) -> list[int]:
    """Return the children of a process whose command has this word."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(OSError):
                if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes; some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class KilledRun:
    """A run whose coordinator and shards are killed at seeded moments, then resumed."""

    def __init__(
        self,
        person: BatchPerson,
        trials: int,
        *,
        on: Sequence[str],
        seed: int,
        pause_s: float = 4.0,
        spread_s: float = 1.5,
        more: Sequence[str] = (),
    ) -> None:
        """Prepare it; ``more`` are further options of ``run``."""
        self.person = person
        self.path = person.home / "run"
        self.marks = person.home / "marks"
        self.marks.mkdir(mode=0o777)
        self.marks.chmod(0o777)
        self._chance = random.Random(seed)
        self._spread_s = spread_s
        self._more = more
        self._kills = Counter[str]()
        command = (
            f"flock -n {self.marks}/$TASK.lock sh -c 'echo run >> {self.marks}/$TASK.runs; sleep {pause_s}'"
            f" || echo $TASK >> {self.marks}/overlaps"
        )
        self._model = person.write_replies(command, "echo done > out")
        tasks = [
            {"id": f"t{number}", "instruction": "work", "check": "test -s out", "env": {"TASK": f"t{number}"}}
            for number in range(trials // max(len(on), 1))
        ]
        self._tasks = person.write_tasks(tasks)
        self._on = [word for target in on for word in ("--on", target)]

    def run(self, kills: int, concurrency: int, per_shard: int) -> Counter[str]:
        """Run it to its end with so many kills; return how often what was killed."""
        process = self.person.start(
            "run", self._tasks.name, "--model", self._model, *self._on, "--into", str(self.path),
            "-n", str(concurrency), "--per-shard", str(per_shard), "--attempts", "20", *self._more,
        )  # fmt: skip
        for _ in range(kills):
            process = self._kill_one(process)
        output = process.communicate(timeout=_ENDS_S * 2)
        assert process.returncode in (0, 1), output
        if process.returncode:  # attempts that other kills cut off are left to a last command
            done = self.person.run("resume", str(self.path), limit_s=_ENDS_S * 2)
            assert done.returncode == 0, done.stderr
        return self._kills

    def _kill_one(self, process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        wait_until(lambda: find_shards(self.path) or process.poll() is not None)
        time.sleep(self._chance.uniform(0.05, self._spread_s))  # the moment of the kill, not a wait
        shards, drivers = find_shards(self.path), find_children(process.pid, "hermes_exec_agent.batch.ray_driver")
        if process.poll() is not None:
            process.communicate()
            return self.person.start("resume", str(self.path))
        choices = ["coordinator", *(["shard"] * 2 + ["all"] if shards else []), *(["driver"] if drivers else [])]
        chosen = self._chance.choice(choices)
        if chosen in ("coordinator", "all"):
            process.kill()
        if chosen == "all":  # as with the end of a machine's power
            kill_all(shards)
        elif chosen != "coordinator":
            kill_all([self._chance.choice(shards if chosen == "shard" else drivers)])
        self._kills[chosen] += 1
        if chosen in ("shard", "driver"):
            return process
        process.communicate()
        return self.person.start("resume", str(self.path))

    def check(self) -> None:
        """Check that each trial has one accepted result, and that its attempts never overlapped."""
        state = read_state(self.path)
        assert not (self.marks / "overlaps").exists(), (self.marks / "overlaps").read_text()
        for trial, each in state.results():
            assert each.accepted is not None, trial
            assert (each.accepted["state"], each.accepted["reward"]) == ("graded", 1.0), each.accepted
            assert not each.is_running
            run = RunFolder(self.path)
            results = [run.read_result(trial.key, number) for number in range(1, each.claimed + 1)]
            assert all(result is not None for result in results)
            assert sum(bool(result and result["final"]) for result in results) == 1
