"""The command line, ``hermes-exec``. docs/cli.md describes every command and exit code."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


_VALUED = frozenset({"--config", "--log-format"})
_FLAGS = frozenset({"--version", "--quiet", "--verbose", "-v", "-vv", "--debug", "--audit", "--no-audit"})
"""The options before the command; ``-q`` is a question in a chat."""


def talk() -> int:
    """Run ``hermes-cli``, which is ``hermes-exec chat``; options of ``hermes-exec`` itself may come first."""
    at = 1
    while at < len(sys.argv) and (option := sys.argv[at].partition("="))[0] in _VALUED | _FLAGS:
        at += 2 if option[0] in _VALUED and not option[1] else 1
    if "--version" not in sys.argv[1:at]:
        sys.argv.insert(at, "chat")
    return main()


def main() -> int:
    """Run this process's command line. Does not return, but for ``python -m`` on a broken standard output."""
    if sys.platform == "win32":
        print("hermes-exec: Windows is not supported. Try: run it inside WSL2", file=sys.stderr)
        return 125
    try:
        _open_standard_files()
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 141  # whoever read it has gone, and nobody is left to be told
    # All that was opened is closed by now; taking the interpreter down in good order only takes time.
    os._exit(code)


def _run(words: Sequence[str]) -> int:
    from hermes_exec.cli.fast_args import spoken_chat, spoken_run

    run, chat, skill = spoken_run(words), spoken_chat(words), None
    if words[:2] == ["skill", "run"]:
        from hermes_exec_agent.cli.skill_run import spoken

        skill = spoken(words)
    if run is None and chat is None and skill is None:
        from hermes_exec.cli.app import start

        return start(words)
    from hermes_exec.cli.console import report
    from hermes_exec.cli.open_target import tell_warnings

    try:
        tell_warnings()
        if run is not None:
            from hermes_exec.cli.run_command import perform

            return perform(run)
        if skill is not None:
            from hermes_exec_agent.cli.skill_run import perform as perform_skill

            return perform_skill(skill)
        from hermes_exec_agent.cli.start_chat import talk

        return talk(chat) if chat is not None else 0
    except Exception as error:  # noqa: BLE001  the last one who can tell it in a line
        return report(error)


def _open_standard_files() -> None:
    # A descriptor that was closed when we started would be given to the next file that is opened, and
    # output would end up in there.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  for our life
    stdout: Any = sys.stdout  # a TextIOWrapper, in a process of its own
    if stdout.errors in {"strict", "surrogateescape"}:  # the latter in the C locale, where it refuses letters too
        stdout.reconfigure(errors="backslashreplace")  # as standard error: no letter ends a table in its midst
