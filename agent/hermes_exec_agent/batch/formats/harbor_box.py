"""The containers of a Harbor trial: their options, their users, their healthchecks, and the tests in them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hermes_exec
from hermes_exec.config.check import profile_from_table
from hermes_exec.config.load import load_settings, resolve
from hermes_exec.errors import HermesError, PlaceUnavailable, UsageError
from hermes_exec_agent.batch.formats.grading import STEP_S, CheckFault, find_last_line
from hermes_exec_agent.batch.formats.harbor import TARGET
from hermes_exec_agent.batch.formats.harbor_rewards import LONGEST, parse_rewards
from hermes_exec_agent.batch.formats.variables import fill

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping
    from pathlib import Path

    from hermes_exec import Terminal
    from hermes_exec.config.profile import Profile
    from hermes_exec.result import Result
    from hermes_exec_agent.batch.formats.harbor_spec import BoxSpec, CollectSpec, HealthSpec, VerifierSpec
    from hermes_exec_agent.batch.places import AttemptPlace
    from hermes_exec_agent.batch.trials import Trial

_FOLDERS = "/logs/agent /logs/verifier /logs/artifacts"
_REWARDS = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
"""The first one that exists counts."""
_OUTPUT = 64 << 10
_ROOT = "0"
_READ = """for file in "$@"; do
    [ -e "$file" ] || [ -L "$file" ] || continue
    [ -f "$file" ] && [ ! -L "$file" ] || { echo "$file is not a regular file" >&2; exit 1; }
    printf '%s\\n' "$file" && exec head -c 65537 "$file"
done
echo "the tests wrote no reward" >&2; exit 1"""


def create_profile(trial: Trial, box: BoxSpec, files: Path) -> Profile | str:
    """Return the container of a trial; the trial's own target if the person chose another one than the task's."""
    if trial.target != TARGET:
        # Which targets can do that was checked when the run was planned.
        if box.hosts:
            profile = resolve(trial.target, load_settings()).profile
            return profile.model_copy(update={"network": "open", "allow": box.hosts})
        if box.network == "none":
            profile = resolve(trial.target, load_settings()).profile
            is_cloud = hasattr(profile, "allow")
            return profile.model_copy(update={"network": "blocked", "allow": ()} if is_cloud else {"network": "none"})
        return trial.target
    table: dict[str, Any] = {"type": "docker", "network": box.network}
    if box.image is not None:
        table["image"] = box.image
    else:
        folder = files / trial.task.id / box.folder
        table |= {"dockerfile": str(folder.absolute() / "Dockerfile"), "context": str(folder.absolute())}
    if box.cpus is not None:
        table["cpus"] = box.cpus
    if box.memory_mb is not None:
        table["memory"] = box.memory_mb << 20
    return profile_from_table(table, f"task {trial.task.id}")


@dataclass(frozen=True, slots=True)
class TestsEnd:
    """How tests ended."""

    rewards: dict[str, float]
    done: Result

    def describe(self) -> str:
        """Return their exit code and the last line of their output."""
        return _describe(self.done)

    def to_record(self) -> dict[str, Any]:
        """Return what a result keeps."""
        return {
            "exit_code": self.done.exit_code,
            "seconds": round(self.done.duration_s, 3),
            "last": self.describe(),
            "rewards": self.rewards,
        }


class HarborBox:
    """An open container of a trial."""

    def __init__(self, trial: Trial, box: BoxSpec, place: AttemptPlace, files: Path, passed: Collection[str]) -> None:
        """``files`` is the folder of the task; ``passed`` are the variables that it may read."""
        self._trial = trial
        self._box = box
        self.place = place
        self._files = files
        self._passed = passed
        self.workdir = box.workdir
        """The folder of the agent and of the tests; the image's own once `prepare` has read it."""

    def fill(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return variables with the person's values; see `variables.fill`."""
        return fill(env, self._passed, os.environ)

    @contextlib.asynccontextmanager
    async def open_as(self, user: str | None) -> AsyncGenerator[Terminal]:
        """Open the container for another user; the same terminal for the image's own user.

        Raises:
            UsageError: the target is not a container of Docker.
            PlaceError: it cannot be opened.
        """
        if user is None:
            yield self.place.terminal
            return
        if self.place.terminal.kind != TARGET or not self.place.resource:
            raise UsageError(f"{self._trial.target}: it has no other users for a task", remedy="leave --on out")
        table = {"type": "docker", "container": self.place.resource, "user": user}
        profile = profile_from_table(table, f"the user {user}")
        async with hermes_exec.open(profile, env=self.fill(self._box.env)) as terminal:
            yield terminal

    @contextlib.asynccontextmanager
    async def open_as_root(self) -> AsyncGenerator[Terminal]:
        """Open the container for root, where it has users."""
        own = await self.place.terminal.run(["id", "-u"], timeout=STEP_S)
        is_root = own.stdout_text.strip() == _ROOT
        async with self.open_as(None if is_root or not self.place.resource else _ROOT) as terminal:
            yield terminal

    async def prepare(self) -> None:
        """Find the working folder, and create the folders for logs."""
        terminal = self.place.terminal
        if self.workdir is None and self.place.resource:
            # The container's first process has the folder of the image; another user may not look at it.
            first = await terminal.run(["readlink", "/proc/1/cwd"], cwd="/", timeout=STEP_S)
            self.workdir = first.stdout_text.rstrip("\n") or None
        async with self.open_as_root() as root:
            await run_step(root, f"mkdir -p {_FOLDERS} && chmod 777 {_FOLDERS}")

    async def upload(self, root: Terminal, target: str, *folders: str) -> None:
        """Replace a folder of the container's root by folders of the task, one over the other."""
        await run_step(root, f"rm -rf {target} && mkdir {target}")
        for name in folders:
            await root.upload(self._files / name, target)
        await run_step(root, f"chmod -R a+rX {target}")

    async def await_health(self, health: HealthSpec | None) -> None:
        """Wait until a healthcheck succeeds.

        Raises:
            PlaceUnavailable: it failed too often.
        """
        if health is None:
            return
        begun, failures = time.monotonic(), 0
        while True:
            argv = ["/bin/sh", "-c", health.command]
            done = await self.place.terminal.run(
                argv, cwd=self.workdir, timeout=health.timeout_s, merge_stderr=True, max_output=_OUTPUT
            )
            if done.ok:
                return
            failures += time.monotonic() - begun >= health.start_period_s
            if failures >= health.retries:
                last = done.stdout_text[-200:].strip()
                raise PlaceUnavailable(f"the healthcheck of the task failed: {done.reason}: {last}")
            await asyncio.sleep(health.interval_s)

    async def run_collects(self, hooks: tuple[CollectSpec, ...]) -> None:
        """Run commands before artifacts are collected; their failures change nothing."""
        for hook in hooks:
            with contextlib.suppress(HermesError):
                async with self.open_as(hook.user) as terminal:
                    argv = ["/bin/sh", "-c", hook.command]
                    await terminal.run(argv, cwd=self.workdir, timeout=hook.timeout_s, max_output=_OUTPUT)

    async def run_tests(self, verifier: VerifierSpec) -> TestsEnd:
        """Upload the tests, run them, and read the rewards.

        Raises:
            CheckFault: they did not end, or wrote no reward that can be used.
        """
        async with self.open_as_root() as root:
            await run_step(root, "rm -rf /logs/verifier && mkdir -p -m 777 /logs/verifier")
            if not self._box.has_tests:
                await self.upload(root, "/tests", *verifier.folders)
            async with self.open_as(verifier.user) as terminal:
                done = await terminal.run(
                    ["/bin/sh", "-c", self._trial.task.check or "false"], cwd=self.workdir,
                    env=self.fill(verifier.env), timeout=verifier.timeout_s, merge_stderr=True, max_output=_OUTPUT,
                )  # fmt: skip
            if done.exit_code is None or done.timed_out:
                raise CheckFault(f"the tests did not end: {done.reason}")
            found = await root.run(["/bin/sh", "-c", _READ, "sh", *_REWARDS], timeout=STEP_S, max_output=2 * LONGEST)
        if not found.ok:
            raise CheckFault(f"{found.stderr_text.strip()[:200]}; the tests ended with {_describe(done)}")
        path, _, text = found.stdout.partition(b"\n")
        return TestsEnd(parse_rewards(text, is_json=path.endswith(b".json")), done)


async def run_step(terminal: Terminal, command: str) -> None:
    """Run a command that prepares a container.

    Raises:
        UsageError: it failed.
    """
    done = await terminal.run(["/bin/sh", "-c", command], cwd="/", timeout=STEP_S, merge_stderr=True)
    if not done.ok:
        raise UsageError(f"{command}: {done.reason}: {done.stdout_text[-200:].strip()}")


def _describe(done: Result) -> str:
    return f"exit code {done.exit_code}: {find_last_line(done)[:200]}"
