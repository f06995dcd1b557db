"""Look at a skill's text. What is found can refuse it; that nothing is found proves nothing."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.child_process import Unanswered, ask
from hermes_exec_policies.gate.verdict import Finding, Kind, security

if TYPE_CHECKING:
    from hermes_exec_policies.gate.manifest import Manifest
    from hermes_exec_policies.gate.tree import Tree

_CPU_S = 20
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*")


async def audit(tree: Tree, manifest: Manifest) -> list[Finding]:
    """Everything that a look at the text of a skill finds."""
    texts = texts_of(tree)
    asked = [*manifest.needs.packages, *texts.get("requirements.txt", "").splitlines()]
    packages = [hit.group() for each in asked if (hit := _PACKAGE.match(each))]
    question: dict[str, Any] = {"texts": texts, "hosts": list(manifest.needs.hosts), "packages": packages}
    try:
        told = await ask("hermes_exec_policies.gate.audit.look", question, cpu_s=_CPU_S)
    except Unanswered as error:
        # Fail closed: a text that a scanner cannot get through is no text that was looked at.
        return [security("audit.unreadable", f"it could not be looked at: {error.what}")]
    return [
        Finding(each["stage"], Kind(each["kind"]), each["code"], each["operator"], each["path"], each["line"])
        for each in told
    ]


def texts_of(tree: Tree) -> dict[str, str]:
    """Every file that is text, whatever its name; of others the manifest's stage lets pictures and the like pass."""
    found: dict[str, str] = {}
    for each in tree.files:
        with contextlib.suppress(UnicodeDecodeError):
            found[each.path] = tree.read(each.path).decode()
    return found
