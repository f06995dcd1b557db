"""Rules on the text of shell scripts, and of commands that stand in a description."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.audit.rules import patterns
from hermes_exec_policies.gate.verdict import Finding, security

if TYPE_CHECKING:
    from collections.abc import Callable

_NETWORK = re.compile(
    r"(^|[;&|(`]|\b(then|do|else|trap|exec|nohup|xargs)\s)\s*['\"]?(sudo\s+)?(/[\w/]+/)?"
    r"(curl|wget|nc|ncat|netcat|ssh|scp|sftp|rsync|telnet|ftp|nslookup|openssl\s+s_client|"
    r"git\s+(clone|ls-remote|fetch|pull|push|submodule))(\s|$)", re.MULTILINE,
)  # fmt: skip
_PYTHON = re.compile(r"\bpython[\d.]*\s+(?:-\w\s+)*-c\s+(?:'([^']*)'|\"([^\"]*)\")")
_ASSIGNED = re.compile(
    r"^\s*(?:export\s+|local\s+)?(\w+)=(?:'([^'\n]*)'|\"([^\"$`\n]*)\"|([^\s'\"$`;&|]+))\s*$", re.MULTILINE
)
_ESCAPED = re.compile(r"\$'((?:[^'\\]|\\.)*)'")
_CUTS = re.compile(r"(?<=\w)(''|\"\"|\$@|\$\*|\$\{\w*\}|\\(?=\w))(?=\w|''|\"\")|(?<=[\s/|;&])\\(?=\w)")
_IFS = re.compile(r"\$IFS\$?\d?|\$\{IFS[^}]*\}")
_MORE = re.compile(r"\\\r?\n")
_MOST = 50
_LONGEST = 1 << 20


def findings(path: str, text: str) -> list[Finding]:
    """What the rules find in a script."""
    joined = _plain(_joined(text))
    code = "\n".join(
        "" if line.lstrip().startswith("#") and index else line for index, line in enumerate(joined.split("\n"))
    )
    return [*commands(path, code), *network(path, code), *_matched("scripts", path, code)]


def network(path: str, text: str) -> list[Finding]:
    """Programs for networks in text that is all commands."""
    text = _plain(_joined(text))
    return [
        security("audit.network", f"it starts what uses the network: {hit.group().strip()}", path, _line(text, hit))
        for hit in [_NETWORK.search(text)]
        if hit
    ]


def pythons(text: str) -> list[str]:
    """What a script hands to an interpreter of Python in plain words."""
    return ["".join(each) for each in _PYTHON.findall(text)]


def commands(path: str, text: str) -> list[Finding]:
    """What the rules find in text that holds commands."""
    return _matched("commands", path, _plain(_joined(text)))


def started(path: str, text: str) -> list[Finding]:
    """What the rules find in the words of a program that is started."""
    return [*commands(path, text), *(each for each in _matched("scripts", path, text) if each.code != "audit.network")]


def _matched(table: str, path: str, text: str) -> list[Finding]:
    return [
        security(f"audit.{name}", f"a command that no skill needs: {hit.group().strip()}", path, _line(text, hit))
        for name, rule in patterns(table).items()
        if (hit := rule.search(text))
    ]


def _joined(text: str) -> str:
    """Commands that go on in the next line, in one."""
    return _MORE.sub(" ", text)


def _plain(text: str) -> str:
    """Words that are cut by quotes of nothing or backslashes, or kept in variables, in one piece."""
    text = _CUTS.sub("", _IFS.sub(" ", _ESCAPED.sub(_unescaped, text)))
    for name, *values in _ASSIGNED.findall(text)[:_MOST]:
        # A function as it is no pattern: what stands in a variable may hold backslashes.
        text = re.sub(rf"\$({name}\b|\{{{name}\}})", _always("".join(values)), text)[:_LONGEST]
    return text


def _always(value: str) -> Callable[[re.Match[str]], str]:
    return lambda _: value


def _unescaped(hit: re.Match[str]) -> str:
    """What the shell makes of letters that are written as numbers."""
    try:
        return hit.group(1).encode("latin-1", "replace").decode("unicode_escape")
    except UnicodeDecodeError:
        return hit.group()


def _line(text: str, hit: re.Match[str]) -> int:
    return text.count("\n", 0, hit.start()) + 1
