"""Programs for the Python of the target."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from hermes_exec import Terminal

NO_PYTHON = "the tool terminal, with sh, find and grep"
_START = 'p=$(command -v python3 || command -v /usr/libexec/platform-python) || exit 127; exec "$p" "$@"'


_SENSITIVE = ("hermes_exec.guest.files.real_path", "hermes_exec_agent.tools.inside.sensitive")
_BEFORE = {"search": _SENSITIVE, "linked": _SENSITIVE}
"""Modules that are sent before a program, concatenated with it."""


@cache
def _text(module: str) -> str:
    package, _, name = module.rpartition(".")
    return files(package).joinpath(f"{name}.py").read_text("utf-8")


def build_argv(terminal: Terminal, program: str, *options: str) -> list[str]:
    """Return the argv that runs a program of ``inside`` in the target.

    Raises:
        Unsupported: the target has no Python.
    """
    if terminal.capabilities.carrier == "plain":
        raise Unsupported("this target has no Python", remedy=NO_PYTHON)
    text = "\n".join(
        _text(module) for module in (*_BEFORE.get(program, ()), f"hermes_exec_agent.tools.inside.{program}")
    )
    return ["sh", "-c", _START, "sh", *options, "-c", text]
