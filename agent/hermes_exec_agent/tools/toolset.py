"""Which tools a conversation has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hermes_exec.config.check import nearest
from hermes_exec.errors import ConfigError
from hermes_exec_agent.tools.delegate import HandOn
from hermes_exec_agent.tools.skillset import Skillset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.tools.tool import Context, Tool
    from hermes_exec_policies.gate.cases import Case

CORE = (
    "terminal", "process", "read_file", "write_file", "patch", "search_files", "execute_code", "skills_list",
    "skill_view", "skill_manage", "skill_run", "todo", "clarify", "delegate_task",
)  # fmt: skip
MINIMAL = ("terminal",)
"""One tool does for many tasks, and for models that are confused by more."""
_NOT_FROM_SCRIPTS = frozenset({"execute_code", "delegate_task", "skill_manage", "clarify", "todo"})
"""What asks a model or a person is asked for by a model, where a budget counts it."""


def core_tools(
    *,
    models: Models | None = None,
    log: EventLog | None = None,
    names: Literal["core", "minimal"] | Sequence[str] = "core",
    cases: Sequence[Case] = (),
    mends: bool = True,
) -> Callable[[Context], Sequence[Tool]]:
    """What makes the tools of a conversation; they are the same from its beginning to its end.

    Args:
        models: who writes skills, and whom a task is handed to; without any, an agent does all of that itself.
        log: where conversations are recorded that a task was handed to; without one, none is.
        names: which tools, or a set of them.
        cases: a person's, which the skills of this conversation have to hold.
        mends: whether a skill that fails in use is improved and run once more, where that may be done.

    Raises:
        ConfigError: there is no such tool.
    """
    wanted = _wanted(names)

    def made(context: Context) -> Sequence[Tool]:
        skills = Skillset(context, models, cases, mends=mends and "skill_manage" in wanted)
        hand_on = HandOn(models, log, wanted, cases, mends) if models is not None and log is not None else None
        return _made(wanted, skills, hand_on)

    return made


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


def _made(wanted: tuple[str, ...], skills: Skillset, hand_on: HandOn | None) -> Sequence[Tool]:
    from hermes_exec_agent.tools.code import ExecuteCode
    from hermes_exec_agent.tools.files import Patch, ReadFile, WriteFile
    from hermes_exec_agent.tools.planning import Clarify, Delegate, Todo
    from hermes_exec_agent.tools.search import SearchFiles
    from hermes_exec_agent.tools.shell import Process, Terminal
    from hermes_exec_agent.tools.skill_list import SkillsList, SkillView
    from hermes_exec_agent.tools.skill_manage import SkillManage
    from hermes_exec_agent.tools.skill_run import SkillRun

    made: list[Tool] = []

    makers: dict[str, Callable[[], Tool]] = {
        "terminal": Terminal,
        "process": Process,
        "read_file": ReadFile,
        "write_file": WriteFile,
        "patch": Patch,
        "search_files": SearchFiles,
        "execute_code": lambda: ExecuteCode(lambda: [each for each in made if each.spec.name not in _NOT_FROM_SCRIPTS]),
        "skills_list": lambda: SkillsList(skills),
        "skill_view": lambda: SkillView(skills),
        "skill_manage": lambda: SkillManage(skills),
        "skill_run": lambda: SkillRun(skills),
        "todo": Todo,
        "clarify": Clarify,
    }
    if hand_on is not None:
        makers["delegate_task"] = lambda: Delegate(hand_on)
    made += [makers[name]() for name in wanted if name in makers]
    return made
