"""Which tools a conversation has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hermes_exec.config.check import nearest
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.tools.tool import Context, Tool

CORE = (
    "terminal", "process", "read_file", "write_file", "patch", "search_files", "execute_code", "todo", "clarify",
)  # fmt: skip
MINIMAL = ("terminal",)
"""One tool does for many tasks, and for models that are confused by more."""
_NOT_FROM_SCRIPTS = frozenset({"execute_code", "delegate_task", "clarify", "todo"})


def core_tools(
    *,
    names: Literal["core", "minimal"] | Sequence[str] = "core",
) -> Callable[[Context], Sequence[Tool]]:
    """What makes the tools of a conversation; they are the same from its beginning to its end.

    Args:
        names: which tools, or a set of them.

    Raises:
        ConfigError: there is no such tool.
    """
    wanted = _wanted(names)
    return lambda _: _made(wanted)


def _wanted(names: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        sets = {"core": CORE, "minimal": MINIMAL}
        if names not in sets:
            raise ConfigError(f"there is no set of tools {names!r}", remedy=f"one of {', '.join(sets)}")
        return sets[names]
    for name in names:
        if name not in CORE:
            raise ConfigError(f"there is no tool {name!r}", remedy=f"{nearest(name, CORE)}; or {', '.join(CORE)}")
    return tuple(name for name in CORE if name in names)


def _made(wanted: tuple[str, ...]) -> Sequence[Tool]:
    from hermes_exec_agent.tools.code import ExecuteCode
    from hermes_exec_agent.tools.files import Patch, ReadFile, WriteFile
    from hermes_exec_agent.tools.planning import Clarify, Todo
    from hermes_exec_agent.tools.search import SearchFiles
    from hermes_exec_agent.tools.shell import Process, Terminal

    made: list[Tool] = []

    makers: dict[str, Callable[[], Tool]] = {
        "terminal": Terminal,
        "process": Process,
        "read_file": ReadFile,
        "write_file": WriteFile,
        "patch": Patch,
        "search_files": SearchFiles,
        "execute_code": lambda: ExecuteCode(lambda: [each for each in made if each.spec.name not in _NOT_FROM_SCRIPTS]),
        "todo": Todo,
        "clarify": Clarify,
    }
    made += [makers[name]() for name in wanted]
    return made
