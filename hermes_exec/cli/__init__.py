"""The command line, ``hermes-exec``. docs/cli.md describes every command and exit code.

A package adds commands with an entry point of the group ``hermes_exec.commands``; see `hermes_exec.cli.commands`.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def main(command: str = "") -> int:
    """Run this process's command line. Returns only from ``python -m`` with a broken standard output.

    ``command`` is inserted behind the options of ``hermes-exec`` itself, for programs that run one command.
    """
    if sys.platform == "win32":
        print("hermes-exec: Windows is not supported. Try: run it inside WSL2", file=sys.stderr)
        return 125
    gc.set_threshold(120_000, 20, 20)  # imports leave no garbage, and looking for it takes a tenth of a short command
    try:
        _open_standard_files()
        if "_HERMES_EXEC_COMPLETE" in os.environ:
            from hermes_exec.cli.completion.engine import print_completions

            code = print_completions(command)
        else:
            code = _run(insert_command(sys.argv[1:], command) if command else sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    except OSError:
        code = 125  # of a full disk, to which no error could be written either
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 141  # the reader of the output has gone
    # Everything that was opened is closed by now; an orderly shutdown of the interpreter only takes time.
    os._exit(code)


def insert_command(argv: list[str], command: str) -> list[str]:
    """Return the arguments with ``command`` behind the options of ``hermes-exec`` itself."""
    from hermes_exec.cli.global_flags import skip_global_options

    at = skip_global_options(argv, without="-q")  # which is a question in a chat
    return argv if "--version" in argv[:at] else [*argv[:at], command, *argv[at:]]


def _run(argv: Sequence[str]) -> int:
    from hermes_exec.cli.commands import prepare_fast
    from hermes_exec.cli.global_flags import flags, requests_json

    flags.json = requests_json(argv)
    work = prepare_fast(argv)
    if work is None:
        from hermes_exec.cli.app import start

        return start(argv)
    from hermes_exec.cli.console import report
    from hermes_exec.cli.open_target import show_warnings

    try:
        show_warnings()
        return work()
    except Exception as error:  # noqa: BLE001  the outermost handler reports every error
        return report(error)


def _open_standard_files() -> None:
    # The next file to be opened would get the number of a closed descriptor, and receive our output.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  stays open
    stdout: Any = sys.stdout  # a TextIOWrapper, in a process of its own
    if stdout.errors in {"strict", "surrogateescape"}:  # the latter in the C locale, which cannot encode all text
        stdout.reconfigure(errors="backslashreplace")  # as standard error has it, so that no character ends a table
