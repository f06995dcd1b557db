"""Programs for the place's own Python."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from hermes_exec import Terminal

NO_PYTHON = "the tool terminal, with sh, find and grep"
_START = 'p=$(command -v python3 || command -v /usr/libexec/platform-python) || exit 127; exec "$p" "$@"'


def words(terminal: Terminal, program: str, *options: str) -> list[str]:
    """The argv that runs a program of ``inside`` in the place.

    Raises:
        Unsupported: it is known to have no Python.
    """
    if terminal.capabilities.carrier == "plain":
        raise Unsupported("this place has no Python", remedy=NO_PYTHON)
    text = files("hermes_exec_agent.tools.inside").joinpath(f"{program}.py").read_text("utf-8")
    return ["sh", "-c", _START, "sh", *options, "-c", text]
