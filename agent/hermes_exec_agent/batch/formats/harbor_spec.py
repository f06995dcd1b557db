"""The parts of a Harbor task that a trial needs, as they are frozen in the folder of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Seconds = Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)]
User = str
PUBLISHED = "/logs/artifacts"
"""The folder of the container that is always an artifact."""


class _Spec(BaseModel, frozen=True, extra="forbid", strict=True):
    """A part of a task."""


class HealthSpec(_Spec, frozen=True):
    """A command that has to succeed before the agent begins."""

    command: Annotated[str, Field(min_length=1)]
    interval_s: Seconds = 5.0
    timeout_s: Seconds = 30.0
    start_period_s: Annotated[float, Field(ge=0, strict=False, allow_inf_nan=False)] = 0.0
    """Seconds in which failures do not count."""
    retries: Annotated[int, Field(ge=1)] = 3


class BoxSpec(_Spec, frozen=True):
    """A container: that of the agent, or one for the tests alone."""

    image: str | None = None
    """A prebuilt image; built from ``folder`` if None."""
    folder: str = "environment"
    """The folder of the task with the Dockerfile."""
    has_tests: bool = False
    """Whether the image has ``/tests``, so that none are uploaded."""
    build_timeout_s: Seconds = 600.0
    cpus: Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)] | None = None
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    network: Literal["none", "bridge"] = "bridge"
    hosts: tuple[str, ...] = Field(default=(), strict=False)
    """The only addresses that it may reach; all if empty."""
    workdir: str | None = None
    env: dict[str, str] = Field(default_factory=dict[str, str])
    """Values may have ``${NAME}`` or ``${NAME:-DEFAULT}``."""
    health: HealthSpec | None = None


class ArtifactSpec(_Spec, frozen=True):
    """A file or a folder of the agent's container that is kept."""

    source: str
    destination: str | None = None
    """Where it is kept in the artifacts' folder; at the path of ``source`` if None."""
    exclude: tuple[str, ...] = Field(default=(), strict=False)


class CollectSpec(_Spec, frozen=True):
    """A command that runs before artifacts are collected; its failure changes nothing."""

    command: Annotated[str, Field(min_length=1)]
    timeout_s: Seconds = 60.0
    user: User | None = None


class VerifierSpec(_Spec, frozen=True):
    """How the tests of a step run."""

    timeout_s: Seconds = 600.0
    user: User | None = None
    env: dict[str, str] = Field(default_factory=dict[str, str])
    folders: tuple[str, ...] = Field(default=("tests",), strict=False)
    """Folders of the task that are uploaded to ``/tests``, one over the other."""
    collect: tuple[CollectSpec, ...] = Field(default=(), strict=False)
    box: BoxSpec | None = None
    """A container of their own, which gets the artifacts; that of the agent if None."""


class StepSpec(_Spec, frozen=True):
    """A request to the agent, and its tests. A task without ``steps`` has one step without a name."""

    name: str = ""
    instruction: str
    time_limit_s: Seconds | None = None
    agent_user: User | None = None
    verifier: VerifierSpec = VerifierSpec()
    health: HealthSpec | None = None
    workdir: str | None = None
    """A folder of the task whose content is copied into the working folder before the step."""
    has_setup: bool = False
    """Whether it has a ``setup.sh``, which runs then."""
    solution: str | None = None
    """A folder of the task, for the agent ``oracle``."""
    min_reward: dict[str, float] = Field(default_factory=dict[str, float])
    """The least rewards; with less, later steps are left out."""
    artifacts: tuple[ArtifactSpec, ...] = Field(default=(), strict=False)


class HarborSpec(_Spec, frozen=True):
    """A task of Harbor's format; its parts are in the folder ``files`` of its task."""

    box: BoxSpec = BoxSpec()
    steps: tuple[StepSpec, ...] = Field(strict=False)
    """At least one."""
    strategy: Literal["mean", "final"] = "mean"
    """Whether the reward is the mean of those of the steps, or that of the last one."""
    solution_env: dict[str, str] = Field(default_factory=dict[str, str])

    @property
    def has_steps(self) -> bool:
        """Whether the agent gets several requests."""
        return bool(self.steps[0].name)

    @property
    def has_users(self) -> bool:
        """Whether something runs as a user that the task names."""
        users = [user for step in self.steps for user in (step.agent_user, step.verifier.user)]
        users += [each.user for step in self.steps for each in step.verifier.collect]
        return any(user is not None for user in users)

    @property
    def has_verifier_box(self) -> bool:
        """Whether tests run in a container of their own."""
        return any(step.verifier.box is not None for step in self.steps)

    @property
    def build_timeout_s(self) -> float:
        """Seconds for the build of an image."""
        boxes = [self.box, *(step.verifier.box for step in self.steps if step.verifier.box is not None)]
        return max(box.build_timeout_s for box in boxes)
