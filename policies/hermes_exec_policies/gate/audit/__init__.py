"""Examine a skill's text. A few certain findings refuse it, and can be fixed; all others are advice.

No findings prove nothing: the sandbox holds what a skill does, whatever its text says.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.child_process import Unanswered, ask
from hermes_exec_policies.gate.verdict import Finding, Kind, functional

if TYPE_CHECKING:
    from hermes_exec_policies.gate.manifest import Manifest
    from hermes_exec_policies.gate.tree import Tree

_CPU_S = 20


async def audit(tree: Tree, manifest: Manifest) -> list[Finding]:
    """Return the findings in the text of a skill."""
    del manifest
    question: dict[str, Any] = {"texts": texts_of(tree)}
    try:
        told = await ask("hermes_exec_policies.gate.audit.look", question, cpu_s=_CPU_S)
    except Unanswered as error:
        # Fail closed: a text that exhausts or crashes the child process was not examined.
        return [functional("audit.unreadable", f"it could not be examined: {error.what}; make its files smaller")]
    return [
        Finding(each["stage"], Kind(each["kind"]), each["code"], each["operator"], each["path"], each["line"])
        for each in told
    ]


def texts_of(tree: Tree) -> dict[str, str]:
    """Return every file that is text, whatever its name; the stage of the manifest allows other kinds."""
    found: dict[str, str] = {}
    for each in tree.files:
        with contextlib.suppress(UnicodeDecodeError):
            found[each.path] = tree.read(each.path).decode()
    return found
