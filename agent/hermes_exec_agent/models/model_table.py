"""The tables ``[models.NAME]`` of the user's ``hermes.toml``, as pydantic models.

Only a configuration with such a table imports this module, because pydantic takes long to import.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from hermes_exec_agent.models.dialects import Effort, Thinking
from hermes_exec_agent.models.prompt_cache import CacheMarks

Dollars = Annotated[float, Field(ge=0)]


class Prices(BaseModel, frozen=True, extra="forbid", strict=True):
    """US dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None


class ModelTable(BaseModel, frozen=True, extra="forbid", strict=True):
    """The table of a model in a file; `ModelSettings` documents the keys."""

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
    cache: CacheMarks = "auto"
    temperature: Annotated[float, Field(ge=0, le=10, strict=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, strict=False)] | None = None
    seed: int | None = None
    vision: bool = False
    effort: Effort | None = None
    thinking: Thinking | None = None
