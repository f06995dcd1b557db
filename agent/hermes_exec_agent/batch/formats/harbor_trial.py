"""A trial of a Harbor task: its container, its steps, the tests of each, and the reward of all."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_agent.batch.formats.grading import STEP_S, CheckFault, Grade
from hermes_exec_agent.batch.formats.harbor_artifacts import Artifacts
from hermes_exec_agent.batch.formats.harbor_box import HarborBox, TestsEnd, create_profile, run_step
from hermes_exec_agent.batch.formats.harbor_rewards import choose_reward, find_shortfall, merge_rewards

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from hermes_exec.config.profile import Profile
    from hermes_exec_agent.batch.formats.harbor_spec import HarborSpec, StepSpec
    from hermes_exec_agent.batch.places import AttemptPlace
    from hermes_exec_agent.batch.trials import Trial


class StepEnd(Protocol):
    """How the agent ended a step."""

    @property
    def conversation(self) -> str:
        """Return the id of its conversation; empty if it has none."""
        ...

    @property
    def has_spent_all(self) -> bool:
        """Return whether a cap of the trial allows no further step."""
        ...


if TYPE_CHECKING:
    RunAgent = Callable[[AttemptPlace, Trial, int], Awaitable[StepEnd]]
    """Lets the agent work on a trial with the request of a step, whose number from 0 on is the last parameter."""
    OpenBox = Callable[[Profile | str, Mapping[str, str]], AbstractAsyncContextManager[AttemptPlace]]
    """Opens a container of the attempt, and records it before a command runs in it."""


@dataclass(slots=True)
class HarborTrial:
    """What a trial of a Harbor task does before and after its agent."""

    trial: Trial
    spec: HarborSpec
    files: Path
    """The folder of the run's copied files."""
    passed: Collection[str]
    """The variables that tasks may read."""
    artifacts: Path
    """The folder for the artifacts of the attempt."""
    clean: Callable[[str], str]
    """Removes secrets from text."""
    open_box: OpenBox
    solution_env: dict[str, str] = field(default_factory=dict[str, str])
    _box: HarborBox | None = None
    _with_solution: bool = False

    def _take(self, place: AttemptPlace) -> HarborBox:
        if self._box is None or self._box.place is not place:
            self._box = HarborBox(self.trial, self.spec.box, place, self._folder, self.passed)
        return self._box

    @property
    def _folder(self) -> Path:
        return self.files / self.trial.task.id

    async def prepare(self, place: AttemptPlace, *, with_solution: bool) -> None:
        """Create the folders for logs, and wait until the task is ready; see `Grading.prepare`."""
        box = self._take(place)
        self.solution_env = box.fill(self.spec.solution_env)
        self._with_solution = with_solution
        await box.prepare()
        await self._upload_solution(box, self.spec.steps[0])
        await box.await_health(self.spec.box.health)

    async def _upload_solution(self, box: HarborBox, step: StepSpec) -> None:
        if self._with_solution and step.solution is not None:
            async with box.open_as_root() as root:
                await box.upload(root, "/solution", step.solution)

    @contextlib.asynccontextmanager
    async def open_for_agent(self, place: AttemptPlace) -> AsyncGenerator[AttemptPlace]:
        """Return the container with the agent's user and folder; see `Grading.open_for_agent`."""
        async with self._open_for_step(self._take(place), self.spec.steps[0]) as opened:
            yield opened

    @contextlib.asynccontextmanager
    async def _open_for_step(self, box: HarborBox, step: StepSpec) -> AsyncGenerator[AttemptPlace]:
        async with box.open_as(step.agent_user) as terminal:
            yield replace(box.place, terminal=terminal, folder=box.workdir)

    async def grade(self, place: AttemptPlace) -> Grade:
        """Run the tests of a task without steps; see `Grading.grade`."""
        tests = await self._verify(self._take(place), self.spec.steps[0])
        return Grade(choose_reward(tests.rewards), tests.to_record(), tests.describe())

    async def run_steps(self, place: AttemptPlace, run_agent: RunAgent) -> Grade:
        """Let the agent work on one step after the other, with the tests of each, and return the reward of all.

        Raises:
            CheckFault: a step could not be prepared, or its tests could not run.
        """
        box = self._take(place)
        ends: list[dict[str, Any]] = []
        rewards: list[dict[str, float]] = []
        for number, step in enumerate(self.spec.steps):
            try:
                if number:
                    await self._clear(box)
                    await self._upload_solution(box, step)
                await self._prepare_step(box, step)
                async with self._open_for_step(box, step) as opened:
                    end = await run_agent(opened, self._create_trial(step), number)
                tests = await self._verify(box, step)
            except CheckFault as error:
                raise CheckFault(f"step {step.name}: {error}") from error
            ends.append({"name": step.name, "conversation": end.conversation, **tests.to_record()})
            rewards.append(tests.rewards)
            if why := find_shortfall(tests.rewards, step.min_reward) or ("a cap" if end.has_spent_all else ""):
                ends[-1]["last_because"] = why
                break
        found = merge_rewards(rewards, self.spec.strategy)
        why = f"{len(ends)} of {len(self.spec.steps)} steps; {ends[-1]['name']}: {ends[-1]['last']}"
        return Grade(choose_reward(found), {"rewards": found, "steps": ends, "last": why}, why)

    def _create_trial(self, step: StepSpec) -> Trial:
        """Return the trial with the request of a step."""
        changes = {"instruction": step.instruction, "time_limit_s": step.time_limit_s}
        return replace(self.trial, task=self.trial.task.model_copy(update=changes))

    async def _clear(self, box: HarborBox) -> None:
        """Remove what the step before left for its agent alone, and its tests."""
        async with box.open_as_root() as root:
            await run_step(root, "rm -rf /tests /solution /logs/verifier /logs/agent")
        await box.prepare()

    async def _prepare_step(self, box: HarborBox, step: StepSpec) -> None:
        """Copy the files of a step, run its setup, and wait until it is ready.

        Raises:
            CheckFault: its setup or its healthcheck failed.
        """
        if step.workdir is not None:
            async with self._open_for_step(box, step) as opened:
                folder = box.workdir or (await opened.terminal.run("pwd -P", timeout=STEP_S)).stdout_text.rstrip("\n")
                await opened.terminal.upload(self._folder / step.workdir, folder)
                if step.has_setup:
                    argv = ["bash", f"{folder.rstrip('/')}/setup.sh"]
                    done = await opened.terminal.run(argv, cwd=folder, timeout=STEP_S, merge_stderr=True)
                    if not done.ok:
                        raise CheckFault(f"setup.sh: {done.reason}: {done.stdout_text[-200:].strip()}")
        try:
            await box.await_health(step.health)
        except PlaceUnavailable as error:
            raise CheckFault(str(error)) from error

    async def _verify(self, box: HarborBox, step: StepSpec) -> TestsEnd:
        """Keep the artifacts of a step, and run its tests: in the agent's container, or in one of their own."""
        artifacts = Artifacts.of(self.artifacts / "steps" / step.name if step.name else self.artifacts,
                                 step.artifacts, self.clean)  # fmt: skip
        await box.run_collects(step.verifier.collect)
        async with box.open_as_root() as root:
            await artifacts.collect(root)
        if step.verifier.box is None:
            return await box.run_tests(step.verifier)
        profile = create_profile(self.trial, step.verifier.box, self.files)
        async with self.open_box(profile, box.fill(step.verifier.box.env)) as place:
            own = HarborBox(self.trial, step.verifier.box, place, self._folder, self.passed)
            await own.prepare()
            async with own.open_as_root() as root:
                await artifacts.restore(root)
            await own.await_health(step.verifier.box.health)
            return await own.run_tests(step.verifier)
