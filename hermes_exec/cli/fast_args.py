"""The plainest command lines of ``run`` and ``chat``, understood without typer, whose import takes longer than they do.

Whatever is not plain here (help, mistakes, repeated or joined options) is left to typer, which knows them all.
A test holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.frontends.chat.options import Asked


@dataclass(slots=True)
class Spoken:
    """The words of one ``run``, as they were said."""

    command: list[str]
    on: str | None = None
    cwd: str | None = None
    env: list[str] = field(default_factory=list[str])
    timeout: str | None = None
    grace: str | None = None
    shell: bool | None = None
    stdin: bool | None = None
    merge: bool = False
    redact: bool = True
    json: bool = False
    limits: list[str] = field(default_factory=list[str])
    detach: bool = False
    name: str = ""
    pty: bool = False


_VALUES = {
    "--on": "on",
    "-o": "on",
    "--cwd": "cwd",
    "-C": "cwd",
    "--timeout": "timeout",
    "--grace": "grace",
}
_FLAGS: dict[str, tuple[str, bool]] = {
    "--shell": ("shell", True),
    "--no-shell": ("shell", False),
    "--stdin": ("stdin", True),
    "-i": ("stdin", True),
    "--no-stdin": ("stdin", False),
    "-n": ("stdin", False),
    "--merge": ("merge", True),
    "--no-redact": ("redact", False),
    "--json": ("json", True),
}
_CHAT = {
    "--on": "on",
    "-o": "on",
    "--query": "query",
    "-q": "query",
    "--model": "model",
    "-m": "model",
    "--resume": "resume",
    "-r": "resume",
    "--approve": "approve",
    "--replay": "replay",
}


def spoken_run(words: Sequence[str]) -> Spoken | None:
    """The command line, if it is a plain ``run``."""
    if not words or words[0] != "run":
        return None
    said: dict[str, Any] = {}
    env: list[str] = []
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        option, equals, value = words[at].partition("=")
        at += 1
        if option in _FLAGS and not equals:
            key, flag = _FLAGS[option]
            said[key] = flag
            continue
        if option not in _VALUES and option not in {"--env", "-e"}:
            return None
        if not (equals and option.startswith("--")):
            if equals or at == len(words):
                return None
            value = words[at]
            at += 1
        if option in _VALUES:
            if _VALUES[option] in said:
                return None
            said[_VALUES[option]] = value
        else:
            env.append(value)
    command = list(words[at + 1 :] if at < len(words) and words[at] == "--" else words[at:])
    return Spoken(command, env=env, **said) if command else None


def spoken_chat(words: Sequence[str]) -> Asked | None:
    """The command line, if it is a plain ``chat``."""
    if not words or words[0] != "chat":
        return None
    said: dict[str, Any] = {}
    at = 1
    while at < len(words):
        option, equals, value = words[at].partition("=")
        at += 1
        if option == "--json" and not equals:
            said["json"] = True
            continue
        if option in {"--continue", "-c"} and not equals:
            said["goes_on"] = True
            continue
        if option not in _CHAT:
            return None
        if not (equals and option.startswith("--")):
            if equals or at == len(words):
                return None
            value = words[at]
            at += 1
        if _CHAT[option] in said:
            return None
        said[_CHAT[option]] = value
    from hermes_exec_agent.frontends.chat.options import Asked

    return Asked(**said)
