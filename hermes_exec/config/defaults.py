"""The settings of this run, without pydantic while nothing is configured: it takes longer to import than a prompt."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.plan import is_unconfigured

if TYPE_CHECKING:
    from hermes_exec.config.settings import Sections

DEFAULTS = Path(__file__).with_name("defaults.json")
"""The default of each setting; a test compares it with the classes of the sections, and writes it."""


def read_sections() -> Sections:
    """Return the sections of the settings of this run; see `load_settings`.

    Raises:
        ConfigError: a file or a variable is invalid.
    """
    if is_unconfigured(os.environ):
        return read_defaults()
    from hermes_exec.config.load import load_settings

    return load_settings()


@functools.cache
def read_defaults() -> Sections:
    """Return the sections of a configuration without any setting."""
    return cast("Sections", json.loads(DEFAULTS.read_bytes(), object_hook=_to_section))


def _to_section(table: dict[str, Any]) -> Any:
    """Return a section; a table that is a setting is empty by default."""
    if not table:
        return table
    values: dict[str, Any] = {}
    for key, each in table.items():
        values[key] = tuple(each) if isinstance(each, list) else each  # pyright: ignore[reportUnknownArgumentType]  JSON
    return SimpleNamespace(**values)
