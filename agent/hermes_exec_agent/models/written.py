"""What ``[models.NAME]`` of the user's ``hermes.toml`` may say.

Imported only where a file has such a table: pydantic, which checks it, takes long to import, and a prompt waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field

from hermes_exec.config.check import checked
from hermes_exec.config.paths import shown
from hermes_exec.errors import ConfigError
from hermes_exec_agent.models.dialects import Effort, Thinking
from hermes_exec_agent.models.settings import ModelSettings
from hermes_exec_agent.models.tokens import Price

Dollars = Annotated[float, Field(ge=0)]


class Prices(BaseModel, frozen=True, extra="forbid", strict=True):
    """US dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None


class Written(BaseModel, frozen=True, extra="forbid", strict=True):
    """One model, as it is written in a file; `ModelSettings` says what each key means."""

    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    key: str | dict[str, object] | None = None
    window: Annotated[int, Field(ge=1024)] | None = None
    prices: Prices | None = None
    fallbacks: tuple[str, ...] = Field(default=(), strict=False)
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    total_s: Annotated[float, Field(gt=0, strict=False)] = 600.0
    silence_s: Annotated[float, Field(gt=0, strict=False)] = 180.0
    effort: Effort | None = None
    thinking: Thinking | None = None


def read_table(name: str, table: object) -> ModelSettings:
    """The settings of the model ``name``.

    Raises:
        ConfigError: one line for each problem.
    """
    where = f"[models.{shown(name)}]"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: should be a table")
    written = checked(Written, cast("Mapping[str, object]", table), where)
    said: dict[str, Any] = {field: getattr(written, field) for field in Written.model_fields}
    if written.prices is not None:
        said["prices"] = Price(**written.prices.model_dump())
    return ModelSettings(**said)
