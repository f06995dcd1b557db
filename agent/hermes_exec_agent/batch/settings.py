"""The frozen settings of a run, and its caps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from hermes_exec_agent.batch.canonical_json import digest_of

TOOLS = ("terminal", "process", "read_file", "write_file", "patch", "search_files", "execute_code", "todo")
"""The tools of a trial: those that need neither a person nor what the agent remembers."""
AGENTS = ("loop", "nop", "oracle")
COMMAND = "command:"
"""The beginning of an agent that is a command line in the target."""

Amount = Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Caps(BaseModel, frozen=True, extra="forbid", strict=True):
    """The most that a run, or one trial of it, may use; None is not a cap."""

    money: Amount | None = None
    """US dollars of all requests to models."""
    tokens: Count | None = None
    """Tokens of all prompts and replies."""
    steps: Count | None = None
    """Requests to models."""
    wall_s: Amount | None = None
    """Seconds that the run has been running, in all its commands."""
    gpu_hours: Amount | None = None
    """Hours of one GPU that shards and targets hold."""
    trial_money: Amount | None = None
    trial_tokens: Count | None = None
    starting: Count = 32
    """Targets that are being opened at once."""

    @property
    def needs_bounds(self) -> bool:
        """Whether the upper bound of each request must be known."""
        bounded = (self.money, self.tokens, self.trial_money, self.trial_tokens)
        return any(each is not None for each in bounded)

    @property
    def needs_price(self) -> bool:
        """Whether the price of each model must be known."""
        return self.money is not None or self.trial_money is not None


class AgentSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """The settings that are part of a trial's key."""

    agent: str = "loop"
    """``loop``, ``nop``, ``oracle``, or ``command:`` and a command line in the target."""
    tools: tuple[str, ...] = Field(default=TOOLS, strict=False)
    steps: Count = 90
    """Replies of the model in a trial, unless the task has another number."""
    time_limit_s: Amount = 3600.0
    """Of the agent in a trial, unless the task has another one."""
    max_tokens: Count | None = None
    """Of each reply."""
    capture: Literal["none", "tokens"] = "none"
    """Whether token ids and logprobs are recorded, for trainers."""

    check: str = ""
    """The function that checks all tasks in place of their own checks, with the digest of its file; empty if none."""

    @property
    def asks_model(self) -> bool:
        """Whether the agent is our own loop, which asks a model."""
        return self.agent == "loop"

    @property
    def digest(self) -> str:
        """The digest of the settings."""
        return digest_of(self.model_dump(mode="json"))


class RunSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """The settings of a run; all but ``agent`` can change how it proceeds, and not what a trial is."""

    on: tuple[str, ...] = Field(default=(), strict=False)
    """Targets; each task's own if empty."""
    models: tuple[str, ...] = Field(default=("",), strict=False)
    """Models by name; ``replay:NAME@DIGEST`` for scripted ones; one empty name for an agent that asks none."""
    policy: str = ""
    """The version of the policy that answers, where a trainer changes it; each result records it."""
    samples: Count = 1
    agent: AgentSettings = AgentSettings()
    caps: Caps = Caps()
    pass_env: tuple[str, ...] = Field(default=(), strict=False)
    """Variables of the environment that tasks may read; their values are in no record."""
    engine: str = "local"
    engine_options: dict[str, str] = Field(default_factory=dict[str, str])
    shard_gpus: Annotated[float, Field(ge=0, strict=False, allow_inf_nan=False)] = 0.0
    """GPUs that the engine reserves for each shard."""
    concurrency: Count = 8
    """Trials that run at once."""
    per_shard: Annotated[int, Field(ge=1, le=1000)] = 64
    """Trials that one shard runs at once."""
    attempts: Annotated[int, Field(ge=1, le=20)] = 3
    """Attempts at a trial that fails because of its target or its model, in one command."""
    lease_s: Annotated[float, Field(ge=1, strict=False)] = 60.0
    """Seconds that a target keeps running after its shard vanished."""

    @property
    def shards(self) -> int:
        """The number of shards that run at once."""
        return -(-self.concurrency // self.per_shard)
