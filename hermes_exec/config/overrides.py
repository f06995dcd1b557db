"""Settings from environment variables and command-line flags."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from hermes_exec.config.check import validate_table
from hermes_exec.config.files import FileContents
from hermes_exec.config.paths import to_printable
from hermes_exec.config.settings import AuditSettings, LimitSettings, LogSettings, Overrides

if TYPE_CHECKING:
    from collections.abc import Mapping

Section = TypeVar("Section", bound=BaseModel)

PREFIX = "HERMES_EXEC_"
VARIABLES = ("ON", "CONFIG", "TIMEOUT", "MAX_OUTPUT", "AUDIT", "LOG", "LOG_FORMAT")
"""The names that may follow the prefix."""

_YES_NO = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def override_layers(environ: Mapping[str, str], flags: Overrides) -> list[FileContents]:
    """Return the settings of the environment and of the flags, the weaker first.

    Raises:
        ConfigError: one of them is invalid; the message names the variable or the flag.
    """
    timeout = environ.get(f"{PREFIX}TIMEOUT") or None
    audit = environ.get(f"{PREFIX}AUDIT") or None
    layers: list[tuple[str, Mapping[str, tuple[str, object]]]] = [
        (
            PREFIX,
            {
                "timeout_s": ("TIMEOUT", _number(timeout)),
                "max_output": ("MAX_OUTPUT", environ.get(f"{PREFIX}MAX_OUTPUT") or None),
                "enabled": ("AUDIT", _YES_NO.get(audit.lower(), audit) if audit else None),
                "level": ("LOG", environ.get(f"{PREFIX}LOG") or None),
                "format": ("LOG_FORMAT", environ.get(f"{PREFIX}LOG_FORMAT") or None),
            },
        ),
        (
            "--",
            {
                "timeout_s": ("timeout", flags.timeout_s),
                "max_output": ("max-output", flags.max_output),
                "enabled": ("audit", flags.audit),
                "level": ("log", flags.log_level),
                "format": ("log-format", flags.log_format),
            },
        ),
    ]
    return [
        FileContents(
            limits=_select_given(LimitSettings, prefix, values),
            audit=_select_given(AuditSettings, prefix, values),
            log=_select_given(LogSettings, prefix, values),
        )
        for prefix, values in layers
    ]


def _select_given(model: type[Section], prefix: str, values: Mapping[str, tuple[str, object]]) -> Section:
    given = {key: values[key] for key in model.model_fields if key in values and values[key][1] is not None}
    for key, (word, value) in given.items():
        validate_table(model, {key: value}, f"{prefix}{word}")
    if not given:
        return model.model_construct()
    return validate_table(model, {key: value for key, (_, value) in given.items()}, prefix)


def _number(text: str | None) -> object:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def find_misspelt_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable with our prefix and an unknown name."""
    lines: list[str] = []
    for name in sorted(environ):
        word = name.removeprefix(PREFIX)
        if word in (name, *VARIABLES):
            continue
        close = difflib.get_close_matches(word, VARIABLES, n=1, cutoff=0.8)
        if close:
            lines.append(f"the variable {to_printable(name)} has no effect. Try: {PREFIX}{close[0]}")
    return lines
