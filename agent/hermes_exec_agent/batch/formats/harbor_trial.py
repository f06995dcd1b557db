"""A trial of a Harbor task: its container, its tests after the agent has ended, and the reward that they wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import hermes_exec
from hermes_exec.config.check import profile_from_table
from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec_agent.batch.formats.grading import STEP_S, CheckFault, Grade, find_last_line
from hermes_exec_agent.batch.formats.harbor import TARGET
from hermes_exec_agent.batch.formats.variables import fill

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping
    from pathlib import Path

    from hermes_exec import Terminal
    from hermes_exec.config.profile import Profile
    from hermes_exec.result import Result
    from hermes_exec_agent.batch.formats.harbor_spec import HarborSpec
    from hermes_exec_agent.batch.places import AttemptPlace
    from hermes_exec_agent.batch.trials import Trial

_FOLDERS = "/logs/agent /logs/verifier /logs/artifacts"
_REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
"""The first one that exists counts."""
_LONGEST = 64 << 10
"""Bytes of a reward file."""
_OUTPUT = 64 << 10
_ROOT = "0"
_READ = """for file in "$@"; do
    [ -e "$file" ] || [ -L "$file" ] || continue
    [ -f "$file" ] && [ ! -L "$file" ] || { echo "$file is no regular file" >&2; exit 1; }
    printf '%s\\n' "$file" && exec head -c 65537 "$file"
done
echo "the tests wrote no reward" >&2; exit 1"""


def create_profile(trial: Trial, spec: HarborSpec, files: Path) -> Profile | str:
    """Return the container of a trial; the trial's own target if the person chose another one than the task's."""
    if trial.target != TARGET:
        return trial.target
    table: dict[str, Any] = {"type": "docker", "network": spec.network}
    if spec.image is not None:
        table["image"] = spec.image
    else:
        folder = files / trial.task.id / "environment"
        table |= {"dockerfile": str(folder.absolute() / "Dockerfile"), "context": str(folder.absolute())}
    if spec.cpus is not None:
        table["cpus"] = spec.cpus
    if spec.memory_mb is not None:
        table["memory"] = spec.memory_mb << 20
    return profile_from_table(table, f"task {trial.task.id}")


class HarborTrial:
    """What a trial of a Harbor task does before and after its agent."""

    def __init__(self, trial: Trial, spec: HarborSpec, files: Path, passed: Collection[str]) -> None:
        """``files`` is the folder of the run's copied files; ``passed`` are the variables that tasks may read."""
        self._trial = trial
        self._spec = spec
        self._folder = files / trial.task.id
        self._passed = passed
        self.solution_env: dict[str, str] = {}
        self._workdir = trial.task.cwd
        """The folder of the agent and of the tests; the image's own once `prepare` has read it."""

    def fill(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return variables with the person's values; see `variables.fill`."""
        return fill(env, self._passed, os.environ)

    @contextlib.asynccontextmanager
    async def _open_as(self, place: AttemptPlace, user: str | None) -> AsyncGenerator[Terminal]:
        """Open the container for another user; the same terminal for the image's own user.

        Raises:
            UsageError: the target is no container of Docker.
            PlaceError: it cannot be opened.
        """
        if user is None:
            yield place.terminal
            return
        if place.terminal.kind != TARGET or not place.resource:
            raise UsageError(f"{self._trial.target}: it has no other users for a task", remedy="leave --on out")
        table = {"type": "docker", "container": place.resource, "user": user}
        profile = profile_from_table(table, f"the user {user}")
        async with hermes_exec.open(profile, env=self.fill(self._spec.env)) as terminal:
            yield terminal

    @contextlib.asynccontextmanager
    async def open_for_agent(self, place: AttemptPlace) -> AsyncGenerator[AttemptPlace]:
        """Return the container with the agent's user and folder."""
        async with self._open_as(place, self._spec.agent_user) as terminal:
            yield replace(place, terminal=terminal, folder=self._workdir)

    @contextlib.asynccontextmanager
    async def _open_as_root(self, place: AttemptPlace) -> AsyncGenerator[Terminal]:
        own = await place.terminal.run(["id", "-u"], timeout=STEP_S)
        is_root = own.stdout_text.strip() == _ROOT
        async with self._open_as(place, None if is_root or not place.resource else _ROOT) as terminal:
            yield terminal

    async def prepare(self, place: AttemptPlace, *, with_solution: bool) -> None:
        """Create the folders for logs, upload the solution, and wait until the task is ready; see `Grading.prepare`."""
        self.solution_env = self.fill(self._spec.solution_env)
        if self._workdir is None and place.resource:
            # The container's first process has the folder of the image; another user may not look at it.
            first = await place.terminal.run(["readlink", "/proc/1/cwd"], cwd="/", timeout=STEP_S)
            self._workdir = first.stdout_text.rstrip("\n") or None
        async with self._open_as_root(place) as root:
            await _run(root, f"mkdir -p {_FOLDERS} && chmod 777 {_FOLDERS}")
            if with_solution:
                await self._upload(root, "solution")
        await self._await_health(place.terminal)

    async def _upload(self, root: Terminal, name: str) -> None:
        """Replace a folder of the container's root by one of the task."""
        await _run(root, f"rm -rf /{name} && mkdir /{name}")
        await root.upload(self._folder / name, f"/{name}")
        await _run(root, f"chmod -R a+rX /{name}")

    async def _await_health(self, terminal: Terminal) -> None:
        health = self._spec.health
        if health is None:
            return
        begun, failures = time.monotonic(), 0
        while True:
            argv = ["/bin/sh", "-c", health.command]
            done = await terminal.run(
                argv, cwd=self._workdir, timeout=health.timeout_s, merge_stderr=True, max_output=_OUTPUT
            )
            if done.ok:
                return
            failures += time.monotonic() - begun >= health.start_period_s
            if failures >= health.retries:
                last = done.stdout_text[-200:].strip()
                raise PlaceUnavailable(f"the healthcheck of the task failed: {done.reason}: {last}")
            await asyncio.sleep(health.interval_s)

    async def grade(self, place: AttemptPlace) -> Grade:
        """Upload the tests, run them, and read the reward; see `Grading.grade`."""
        task = self._trial.task
        async with self._open_as_root(place) as root:
            await _run(root, "rm -rf /logs/verifier && mkdir -p -m 777 /logs/verifier")
            await self._upload(root, "tests")
            async with self._open_as(place, self._spec.verifier_user) as terminal:
                done = await terminal.run(
                    ["/bin/sh", "-c", task.check or "false"], cwd=self._workdir, env=self.fill(self._spec.verifier_env),
                    timeout=task.check_timeout_s, merge_stderr=True, max_output=_OUTPUT,
                )  # fmt: skip
            if done.exit_code is None or done.timed_out:
                raise CheckFault(f"the tests did not end: {done.reason}")
            found = await root.run(["/bin/sh", "-c", _READ, "sh", *_REWARDS], timeout=STEP_S, max_output=2 * _LONGEST)
        if not found.ok:
            raise CheckFault(f"{found.stderr_text.strip()[:200]}; the tests ended with {_describe(done)}")
        path, _, text = found.stdout.partition(b"\n")
        rewards = parse_rewards(text, is_json=path.endswith(b".json"))
        record = {"exit_code": done.exit_code, "seconds": round(done.duration_s, 3), "last": _describe(done)}
        return Grade(choose_reward(rewards), {**record, "rewards": rewards}, _describe(done))


async def _run(terminal: Terminal, command: str) -> None:
    done = await terminal.run(["/bin/sh", "-c", command], cwd="/", timeout=STEP_S, merge_stderr=True)
    if not done.ok:
        raise UsageError(f"{command}: {done.reason}: {done.stdout_text[-200:].strip()}")


def _describe(done: Result) -> str:
    return f"exit code {done.exit_code}: {find_last_line(done)[:200]}"


def parse_rewards(text: bytes, *, is_json: bool) -> dict[str, float]:
    """Return the rewards in a file by name; that of a plain number is ``reward``.

    Raises:
        CheckFault: they are no finite numbers.
    """
    if len(text) > _LONGEST:
        raise CheckFault(f"the reward has more than {_LONGEST} bytes")
    try:
        found: object = json.loads(text) if is_json else float(text)
    except (ValueError, RecursionError):
        raise CheckFault(f"the reward is no {'JSON' if is_json else 'number'}") from None
    table = cast("dict[str, object]", found) if isinstance(found, dict) else {"reward": found}
    rewards: dict[str, float] = {}
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise CheckFault(f"the reward {name[:60]!r} is no finite number")
        rewards[name] = float(value)
    return rewards


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can have
        return False


def choose_reward(rewards: Mapping[str, float]) -> float:
    """Return the one that counts: it is named ``reward``, or is the only one.

    Raises:
        CheckFault: several have other names.
    """
    if "reward" in rewards:
        return rewards["reward"]
    if len(rewards) != 1:
        raise CheckFault(f"reward.json has {len(rewards)} rewards, and none is named 'reward'")
    return next(iter(rewards.values()))
