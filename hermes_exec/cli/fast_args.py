"""Plain command lines, parsed without typer, whose import takes longer than a short command.

A command line that is not plain (help, mistakes, repeated or joined options) is left to typer. Tests compare both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(slots=True)
class RunArguments:
    """The arguments of ``run``, as written."""

    command: list[str]
    on: list[str] = field(default_factory=list[str])
    """The targets; none for the default one."""
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
    max_parallel: int | None = None
    fail_fast: bool = False

    @property
    def target(self) -> str | None:
        """The one target; None for the default one."""
        return self.on[0] if self.on else None


_VALUES = {
    "--cwd": "cwd",
    "-C": "cwd",
    "--timeout": "timeout",
    "--grace": "grace",
}
_LISTS = {"--env": "env", "-e": "env", "--on": "on", "-o": "on"}
_SWITCHES: dict[str, tuple[str, bool]] = {
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


def parse_plain(
    argv: Sequence[str],
    values: Mapping[str, str],
    switches: Mapping[str, tuple[str, bool]],
    lists: Mapping[str, str] | None = None,
    *,
    interspersed: bool = False,
) -> tuple[dict[str, Any], list[str]] | None:
    """Return the options of a plain command line by their parameters, and the other arguments; None if it is not plain.

    Args:
        argv: the arguments behind the command's name.
        values: options that take one value, with the names of their parameters.
        switches: options without a value, with their parameters and values.
        lists: options that may be repeated.
        interspersed: whether options may follow other arguments; ``--`` is then left to typer.
    """
    found: dict[str, Any] = {}
    others: list[str] = []
    rest = list(argv)
    while rest and (interspersed or (rest[0].startswith("-") and rest[0] != "--")):
        word = rest.pop(0)
        if not word.startswith("-"):
            others.append(word)
            continue
        option, equals, value = word.partition("=")
        if option in switches and not equals:
            parameter, state = switches[option]
            found[parameter] = state
            continue
        name = values.get(option) or (lists or {}).get(option, "")
        if not name or (equals and not option.startswith("--")):
            return None
        if not equals:
            if not rest or (rest[0].startswith("-") and rest[0] != "-"):
                return None
            value = rest.pop(0)
        if option in values:
            if name in found:
                return None
            found[name] = value
        else:
            found.setdefault(name, []).append(value)
    return found, others + (rest[1:] if rest[:1] == ["--"] else rest)


def parse_run(argv: Sequence[str]) -> RunArguments | None:
    """Parse a command line if it is a plain ``run``."""
    parsed = parse_plain(argv[1:], _VALUES, _SWITCHES, _LISTS) if argv[:1] == ["run"] else None
    return RunArguments(parsed[1], **parsed[0]) if parsed and parsed[1] else None
