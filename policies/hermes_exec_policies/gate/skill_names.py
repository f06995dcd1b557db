"""The name of a skill in its two spellings: ``generate-csv-report``, whose module is ``generate_csv_report``.

The format agentskills.io forbids underscores, and Python forbids hyphens. Each name has exactly one other spelling,
because neither may contain the other's separator.
"""

from __future__ import annotations

import keyword
import re
import sys

from hermes_exec.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_NAME = 64
RESERVED = frozenset(
    {"aux", "clarify", "con", "cronjob", "delegate-task", "execute-code", "nul", "memory", "patch", "prn", "process",
     "read-file", "search-files", "session-search", "skill-manage", "skill-run", "skill-view", "skills-list",
     "terminal", "todo", "write-file", "main", "conftest", "sitecustomize", "usercustomize", "run", "system"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10)}
)  # fmt: skip
"""Names of an agent's own tools, of devices, and of modules that an interpreter imports by itself."""


def find_name_problem(name: str) -> str:
    """Return why a text is not a valid skill name; empty if it is valid."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        return f"a name is 1 to {MAX_NAME} small letters, digits and single hyphens, and begins with a letter"
    module = name.replace("-", "_")
    if name in RESERVED or module in RESERVED:
        return "that name is taken by a tool, a device or the interpreter"
    if keyword.iskeyword(module) or keyword.issoftkeyword(module) or module in sys.stdlib_module_names:
        return "a module of that name would hide a word or a module of Python's own"
    return ""


def module_name(skill: str) -> str:
    """Return the Python spelling of a skill's name.

    Raises:
        UsageError: it is not a valid skill name.
    """
    if wrong := find_name_problem(skill):
        raise UsageError(f"{skill!r} is no name of a skill: {wrong}")
    return skill.replace("-", "_")


def skill_name(module: str) -> str:
    """Return the name of the skill with this Python spelling.

    Raises:
        UsageError: it is not the spelling of a valid skill name.
    """
    name = module.replace("_", "-")
    wrong = "it holds a hyphen" if "-" in module else find_name_problem(name)
    if wrong:
        raise UsageError(f"{module!r} is no module of a skill: {wrong}")
    return name
