"""Options that several commands have, and how their words are read."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(s|m|h|d|)\Z", re.ASCII)
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Seconds of ``90``, ``1.5``, ``10m``, ``2h`` or ``1d``.

    Raises:
        typer.BadParameter: it is none of these.
    """
    match = _DURATION.match(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration such as 90, 1.5s, 10m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def variables(words: list[str]) -> dict[str, str]:
    """Variables of ``NAME=VALUE``, and of ``NAME`` with the value that it has here.

    Raises:
        typer.BadParameter: a name without a value has none here either.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            if name not in os.environ:
                raise typer.BadParameter(f"{name!r} is no NAME=VALUE, and no variable of that name is set here")
            value = os.environ[name]
        found[name] = value
    return found


def _targets(incomplete: str) -> list[str]:
    from hermes_exec.config.load import load_settings
    from hermes_exec.errors import HermesError
    from hermes_exec.registry import known_types

    try:
        known = [*load_settings().profiles, *known_types()]
    except HermesError:
        known = ["local"]
    return sorted({name for name in known if name.startswith(incomplete)})


On = Annotated[
    str | None,
    typer.Option("--on", "-o", metavar="TARGET", help="The place: a profile, or a one-line target.", autocompletion=_targets),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Place = Annotated[
    str | None,
    typer.Argument(metavar="[TARGET]", help="The place: a profile, or a one-line target.", autocompletion=_targets),
]
Cwd = Annotated[str | None, typer.Option("--cwd", "-C", metavar="DIR", help="The folder to start in, in the place.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable; NAME alone takes its value from here."),
]
