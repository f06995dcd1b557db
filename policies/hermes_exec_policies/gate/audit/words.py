"""Rules on what a skill tells whoever reads its description: instructions that are not its own to give."""

from __future__ import annotations

import base64
import binascii
import re

from hermes_exec_policies.gate.audit import shells
from hermes_exec_policies.gate.audit.rules import patterns
from hermes_exec_policies.gate.verdict import Finding, security

_COMMENT = re.compile(r"<!--(.*?)(-->|\Z)", re.DOTALL)
_ORDERS = re.compile(r"\b(system|run|execute|ignore|install|always|must|send|do not|read|call)\b", re.IGNORECASE)
_CODED = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")


def findings(path: str, text: str) -> list[Finding]:
    """What the rules find in a description, also in words that are hidden by an encoding."""
    found = _look(path, text) + shells.commands(path, text)
    for hit in _COMMENT.finditer(text):
        if _ORDERS.search(hit.group(1)):
            found.append(security("audit.comment", "a comment that is not shown gives orders", path, _line(text, hit)))
    for hit in _CODED.finditer(text):
        said = _decoded(hit.group())
        if said and (_look(path, said) or shells.commands(path, said)):
            found.append(security("audit.encoded", "an encoded text gives orders", path, _line(text, hit)))
    return found


def _look(path: str, text: str) -> list[Finding]:
    return [
        security(
            f"audit.{name}", f"it says what is not a skill's to say: {hit.group().strip()}", path, _line(text, hit)
        )
        for name, rule in patterns("words").items()
        if (hit := rule.search(text))
    ]


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""


def _line(text: str, hit: re.Match[str]) -> int:
    return text.count("\n", 0, hit.start()) + 1
