"""What ``hermes-exec`` itself has to say: lines on standard error, and the exit codes."""

from __future__ import annotations

import os
import sys

from hermes_exec.cli.global_flags import flags
from hermes_exec.config.paths import config_folder, state_folder
from hermes_exec.errno_hints import remedy_at, remedy_for
from hermes_exec.errors import NOTHING_RAN, HermesError, PlaceError, UsageError

CHECK_FAILED = 1
"""What was asked for was looked at, and the answer is no."""
USAGE = 2
"""The command line or the configuration is wrong; nothing ran."""
INTERNAL = 70
"""A fault of ours, after ``EX_SOFTWARE`` of sysexits(3)."""
OURS = 125
"""We could not do our part, such as reaching the place."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""Whoever read our output went away: what a shell shows for SIGPIPE."""


def say(text: str) -> None:
    """Tell something on standard error, each line under our name."""
    for line in flags.clean(text).splitlines():
        print(f"hermes-exec: {printable(line)}", file=sys.stderr)


def note(text: str) -> None:
    """Tell something that ``--quiet`` leaves out."""
    if not flags.quiet:
        say(text)


def printable(text: str) -> str:
    """``text`` with everything escaped that could move a terminal's cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _own_folders() -> dict[str, str]:
    """The folders that our own files are in, by the variable that chooses another one."""
    return {"XDG_STATE_HOME": str(state_folder(os.environ)), "XDG_CONFIG_HOME": str(config_folder(os.environ))}


def report(error: BaseException) -> int:
    """Tell an error in a line, or with its traceback if asked to, and give the exit code for it."""
    if flags.debug:
        import traceback

        print(flags.clean("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if isinstance(error, ImportError):
        from hermes_exec.extras import explain_import_error

        error = explain_import_error(error) or error
    if isinstance(error, HermesError):
        told = str(error)
        if isinstance(error, PlaceError) and error.state != NOTHING_RAN:
            told += f" ({error.state})"
        say(told)
        return USAGE if isinstance(error, UsageError) else OURS
    if isinstance(error, OSError) and error.strerror:
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        variable = next((name for name, folder in _own_folders().items() if path.startswith(folder)), "")
        elsewhere = variable and f"export {variable}=… another folder"
        remedy = remedy_at(path, error.errno, elsewhere) if variable else remedy_for(error.errno)
        say(f"{path}{path and ': '}{error.strerror}{remedy and f'. Try: {remedy}'}")
        return USAGE if variable else OURS
    hint = "" if flags.debug else ". Try: hermes-exec --debug …, which shows where"
    say(f"internal error: {type(error).__name__}: {' '.join(str(error).split())}{hint}")
    return INTERNAL
