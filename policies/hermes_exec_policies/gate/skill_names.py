"""The name of a skill in its two spellings: ``generate-csv-report``, whose module is ``generate_csv_report``.

The format agentskills.io forbids underscores, and Python forbids hyphens. Each name has exactly one other spelling,
because neither may contain the other's separator.
"""

from __future__ import annotations

import keyword
import re
import sys
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_NAME = 64
TOOLS = frozenset(
    {"clarify", "cronjob", "delegate-task", "execute-code", "memory", "patch", "process", "propose-change", "read-file",
     "search-files", "session-search", "skill-manage", "skill-run", "skill-script", "skill-view", "skills-list",
     "terminal", "todo", "user-ask", "vision-analyze", "web-extract", "web-search", "write-file"}
)  # fmt: skip
"""Names of an agent's own tools."""
_DEVICES = frozenset(
    {"aux", "con", "nul", "prn"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10)}
)
_START_UP = frozenset({"main", "conftest", "sitecustomize", "usercustomize", "run", "system"})
"""Modules that an interpreter or a test run imports by itself, and names in the protocol of a run."""
_CONFUSED = (("rn", "m"), ("vv", "w"), ("cl", "d"), ("0", "o"), ("1", "l"), ("i", "l"), ("5", "s"))
_LEAST_LETTERS = 4
"""Shorter names are one edit from each other by chance."""


def find_guide_name_problem(name: str) -> str:
    """Return why a text is not a valid name of a skill that is read; empty if it is valid."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        return f"a name is 1 to {MAX_NAME} letters of a-z, digits and single hyphens between them"
    if name in TOOLS:
        return "a tool has that name, so a model would confuse the two: choose another name"
    if name in _DEVICES:
        return "some systems cannot create a folder of that name: choose another name"
    return ""


def find_name_problem(name: str) -> str:
    """Return why a text is not a valid name of a skill with a function; empty if it is valid."""
    if wrong := find_guide_name_problem(name):
        return wrong
    if name[0].isdigit():
        return "a function's name begins with a letter"
    module = name.replace("-", "_")
    if module in _START_UP:
        return "that name is taken by the interpreter"
    if keyword.iskeyword(module) or keyword.issoftkeyword(module) or module in sys.stdlib_module_names:
        return "a module of that name would hide a word or a module of Python's own"
    return ""


def find_imitated(name: str, others: Iterable[str]) -> str:
    """Return the first of other names that is easily confused with this one; empty if there is none."""
    return next((other for other in sorted(others) if other != name and _is_alike(name, other)), "")


def _is_alike(one: str, other: str) -> bool:
    """Return whether two names look alike, or one edit or exchange of neighbours makes the one of the other."""
    if _skeleton(one) == _skeleton(other):
        return True
    if abs(len(one) - len(other)) > 1 or min(len(one), len(other)) < _LEAST_LETTERS:
        return False
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    rest, rest_of_other = one[start:], other[start:]
    if len(one) == len(other):
        swapped = rest[:2] == rest_of_other[1::-1] and rest[2:] == rest_of_other[2:]
        return rest[1:] == rest_of_other[1:] or swapped
    return rest == rest_of_other[1:] or rest[1:] == rest_of_other


def _skeleton(name: str) -> str:
    for seen, meant in _CONFUSED:
        name = name.replace(seen, meant)
    return name.replace("-", "")


def module_name(skill: str) -> str:
    """Return the Python spelling of a skill's name.

    Raises:
        UsageError: it is not a valid skill name.
    """
    if wrong := find_name_problem(skill):
        raise UsageError(f"{skill!r} is not a name of a skill: {wrong}")
    return skill.replace("-", "_")
