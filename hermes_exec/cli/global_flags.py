"""The options before the command: where they end, and the values that apply to the whole process."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec.observe.redact import Redactor

_VALUED = frozenset({"--config", "--log-format"})
_SWITCHES = frozenset({"--version", "--quiet", "-q", "--verbose", "-v", "-vv", "--debug", "--audit", "--no-audit"})


@dataclass(slots=True)
class Flags:
    """The options before the command. A process has one object of this class, ``flags``."""

    debug: bool = False
    """Show tracebacks."""
    quiet: bool = False
    """Print errors only."""
    json: bool = False
    """Print errors as JSON objects."""
    verbose: int = 0
    """1 logs at the level info, 2 at the level debug."""
    secrets: list[Secret] = field(default_factory=list["Secret"])
    """The secrets of all targets that were planned."""
    redactor: Redactor | None = None
    """Set once a target with secrets is planned."""

    def clean(self, text: str) -> str:
        """Return ``text`` without the known secrets."""
        return self.redactor.redact(text) if self.redactor else text


flags = Flags()


def set_verbosity(level: int) -> None:
    """Print the log of this process for ``-v``, with every detail for ``-vv``; a lower level changes nothing."""
    if level > flags.verbose:
        flags.verbose = level
        os.environ["HERMES_EXEC_LOG"] = "info" if level == 1 else "debug"


_VALUED_OF_RUN = frozenset(
    {"-o", "--on", "-C", "--cwd", "-e", "--env", "--timeout", "--grace", "--limit", "--name", "--max-parallel"}
)


def requests_json(argv: Sequence[str]) -> bool:
    """Return whether a command line has the switch ``--json``, so that its errors are JSON too.

    It is found before the line is parsed, because errors of parsing count. Words of the command of ``run`` do not.
    """
    rest = list(argv[skip_global_options(argv) :])
    in_run = rest[:1] == ["run"]
    at = 1
    while at < len(rest) and rest[at] != "--":
        if rest[at] == "--json":
            return True
        if in_run and not rest[at].startswith("-"):
            return False
        at += 2 if in_run and rest[at] in _VALUED_OF_RUN else 1
    return False


def skip_global_options(argv: Sequence[str], *, without: str = "") -> int:
    """Return the index of the first argument that is not an option of ``hermes-exec`` itself, nor the value of one.

    The option ``without`` does not count as one of ``hermes-exec``.
    """
    at = 0
    while at < len(argv) and argv[at] != without:
        option, equals, _ = argv[at].partition("=")
        if option in _VALUED:
            at += 1 if equals else 2
        elif argv[at] in _SWITCHES:
            at += 1
        else:
            break
    return min(at, len(argv))
