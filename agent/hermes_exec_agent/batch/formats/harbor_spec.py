"""The parts of a Harbor task that a trial needs, as they are frozen in the folder of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Seconds = Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)]
User = str


class HealthSpec(BaseModel, frozen=True, extra="forbid", strict=True):
    """A command that has to succeed before the agent begins."""

    command: Annotated[str, Field(min_length=1)]
    interval_s: Seconds = 5.0
    timeout_s: Seconds = 30.0
    start_period_s: Annotated[float, Field(ge=0, strict=False, allow_inf_nan=False)] = 0.0
    """Seconds in which failures do not count."""
    retries: Annotated[int, Field(ge=1)] = 3


class HarborSpec(BaseModel, frozen=True, extra="forbid", strict=True):
    """A task of Harbor's format; the folder ``files`` of its task holds ``environment``, ``tests`` and ``solution``."""

    image: str | None = None
    """A prebuilt image; built from ``environment/Dockerfile`` if None."""
    build_timeout_s: Seconds = 600.0
    cpus: Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)] | None = None
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    network: Literal["none", "bridge"] = "bridge"
    workdir: str | None = None
    env: dict[str, str] = Field(default_factory=dict[str, str])
    """Values may have ``${NAME}`` or ``${NAME:-DEFAULT}``."""
    health: HealthSpec | None = None
    agent_user: User | None = None
    verifier_user: User | None = None
    verifier_env: dict[str, str] = Field(default_factory=dict[str, str])
    solution_env: dict[str, str] = Field(default_factory=dict[str, str])

    @property
    def has_users(self) -> bool:
        """Whether the agent or the tests run as users that the task names."""
        return self.agent_user is not None or self.verifier_user is not None
