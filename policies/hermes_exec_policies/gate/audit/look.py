"""Examine all texts of a skill; runs in a child process, which a text can keep busy or crash."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from hermes_exec_policies.gate.audit import bandit_checks, python_checks
from hermes_exec_policies.gate.audit.python_checks import pipes_to_shell
from hermes_exec_policies.gate.audit.rules import PIPED
from hermes_exec_policies.gate.verdict import Finding, advice, functional

_SHELL = (".sh", ".bash")
_OTHERS = re.compile(r"scripts/.*\.(pl|pm|rb|[mc]?js|ts|php|lua|ps1|bat|cmd|tcl|r|jl|go|c|cc|cpp|rs|java|awk|vbs)")


def answer(question: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings in the texts of a skill, as plain values."""
    return [asdict(each) for each in look(question["texts"])]


def look(texts: dict[str, str]) -> list[Finding]:
    """Return the findings in the texts of a skill, by path."""
    found: list[Finding] = []
    for path, text in sorted(texts.items()):
        if path.endswith(".py"):
            certain = python_checks.check_python(path, text)
            hints = bandit_checks.run_bandit(path, text) if path.startswith("scripts/") else []
            lines = {each.line for each in certain}
            found += certain
            found += [each for each in hints if each.line not in lines]
        elif path.startswith("scripts/") and (path.endswith(_SHELL) or re.match(r"#!.*\b(ba|da|k|z)?sh\b", text)):
            found += _check_shell(path, text)
        elif _OTHERS.fullmatch(path):
            said = "the audit reads Python and shell scripts; nothing else is known of this file"
            found.append(advice("audit.language", said, path))
    return list(dict.fromkeys(found))


def _check_shell(path: str, text: str) -> list[Finding]:
    return [
        functional(PIPED.code, PIPED.explain(f"it pipes a download to a shell: {line.strip()[:120]}"), path, number)
        for number, line in enumerate(text.replace("\\\n", "  ").split("\n"), 1)
        if not line.lstrip().startswith("#") and pipes_to_shell(line)
    ]
