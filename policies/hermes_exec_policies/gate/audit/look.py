"""All looks at a skill's texts; runs in a child process, which a text may be made to keep busy or crash."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.audit import pythons, scanners, shells, words

if TYPE_CHECKING:
    from hermes_exec_policies.gate.verdict import Finding


def answer(question: dict[str, Any]) -> list[dict[str, Any]]:
    """Findings in the texts of a skill, as plain values."""
    return [asdict(each) for each in look(question["texts"], frozenset(question["hosts"]))]


def look(texts: dict[str, str], hosts: frozenset[str]) -> list[Finding]:
    """Findings in the texts of a skill, by path."""
    found: list[Finding] = []
    for path, text in sorted(texts.items()):
        if path.endswith(".py"):
            found += pythons.findings(path, text, network=bool(hosts))
        elif path.endswith((".sh", ".bash")) or text.startswith("#!"):
            found += shells.findings(path, text)
        elif path == "SKILL.md" or path.startswith("references/"):
            found += words.findings(path, text)
    found += scanners.findings(texts)
    return list(dict.fromkeys(found))
