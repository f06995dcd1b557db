"""Rules on the text of shell scripts, and of commands that stand in a description."""

from __future__ import annotations

import re

from hermes_exec_policies.gate.audit.rules import patterns
from hermes_exec_policies.gate.verdict import Finding, security

_NETWORK = re.compile(r"^\s*(sudo\s+)?(curl|wget|nc|ncat|ssh|scp|rsync|telnet|ftp|git\s+clone)\b", re.MULTILINE)
_CUTS = re.compile(r"(?<=\w)(''|\"\"|\$@|\$\*|\$\{\w*\}|\\(?=\w))(?=\w|''|\"\")|(?<=[\s/|;&])\\(?=\w)")
_IFS = re.compile(r"\$IFS\$?\d?|\$\{IFS[^}]*\}")
_MORE = re.compile(r"\\\r?\n")


def findings(path: str, text: str) -> list[Finding]:
    """What the rules find in a script."""
    joined = _plain(_joined(text))
    code = "\n".join(
        "" if line.lstrip().startswith("#") and index else line for index, line in enumerate(joined.split("\n"))
    )
    found = commands(path, code)
    if hit := _NETWORK.search(code):
        found.append(
            security("audit.network", f"a script uses the network: {hit.group().strip()}", path, _line(code, hit))
        )
    return found


def commands(path: str, text: str) -> list[Finding]:
    """What the rules find in text that holds commands."""
    text = _plain(_joined(text))
    return [
        security(f"audit.{name}", f"a command that no skill needs: {hit.group().strip()}", path, _line(text, hit))
        for name, rule in patterns("commands").items()
        if (hit := rule.search(text))
    ]


def _joined(text: str) -> str:
    """Commands that go on in the next line, in one."""
    return _MORE.sub(" ", text)


def _plain(text: str) -> str:
    """Words that are cut by quotes of nothing, by backslashes or by empty variables, in one piece."""
    return _CUTS.sub("", _IFS.sub(" ", text))


def _line(text: str, hit: re.Match[str]) -> int:
    return text.count("\n", 0, hit.start()) + 1
