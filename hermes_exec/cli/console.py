"""Messages of ``hermes-exec`` on standard error, and its exit codes."""

from __future__ import annotations

import os
import sys

from hermes_exec.cli.global_flags import flags
from hermes_exec.config.paths import config_folder, state_folder
from hermes_exec.errno_hints import errno_remedy, path_remedy
from hermes_exec.errors import NOTHING_RAN, HermesError, PlaceError, TransferError, UsageError

CHECK_FAILED = 1
"""The check was made, and failed."""
USAGE = 2
"""The command line or the configuration is wrong; nothing ran."""
INTERNAL = 70
"""An internal error, after ``EX_SOFTWARE`` of sysexits(3)."""
OURS = 125
"""hermes_exec failed, not the command: for example, the target cannot be reached."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""The reader of our output has gone: the code that a shell shows for SIGPIPE."""


def say(text: str) -> None:
    """Print a message on standard error, each line prefixed with the program's name."""
    for line in flags.clean(text).splitlines():
        print(f"hermes-exec: {escape_controls(line)}", file=sys.stderr)


def note(text: str) -> None:
    """Print a message unless ``--quiet`` is set."""
    if not flags.quiet:
        say(text)


def escape_controls(text: str) -> str:
    """Return ``text`` with control characters escaped, which could move a terminal's cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _own_folders() -> dict[str, str]:
    """Return the folders of our own files, by the variable that selects another one."""
    return {"XDG_STATE_HOME": str(state_folder(os.environ)), "XDG_CONFIG_HOME": str(config_folder(os.environ))}


def describe_error(error: Exception) -> str:
    """Return the message of an error, with the state that the failure of a target left unless nothing ran."""
    state = f" ({error.state})" if isinstance(error, PlaceError) and error.state != NOTHING_RAN else ""
    text = escape_controls(str(error)) if isinstance(error, TransferError) else str(error)  # it has names of files
    return f"{text}{state}"


def print_error(kind: str, message: str, code: int, *, remedy: str = "", state: str = "") -> None:
    """Print an error: in one line, or with ``--json`` as an object on standard error."""
    if not flags.json:
        say(f"{message}. Try: {remedy}" if remedy else message)
        return
    import json

    error = {"type": kind, "message": message, "remedy": remedy, "state": state, "exit_code": code}
    print(flags.clean(json.dumps({"error": error})), file=sys.stderr)


def report(error: BaseException) -> int:
    """Print an error, with its traceback if ``--debug`` is set, and return its exit code; see ``print_error``."""
    if flags.debug:
        import traceback

        print(flags.clean("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if isinstance(error, ImportError):
        from hermes_exec.extras import explain_import_error

        error = explain_import_error(error) or error
    kind = type(error).__name__
    if isinstance(error, HermesError):
        code = USAGE if isinstance(error, UsageError) else OURS
        if flags.json:
            print_error(kind, error.what, code, remedy=error.remedy, state=error.state)
        else:
            say(describe_error(error))
        return code
    if isinstance(error, OSError) and error.strerror:
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        variable = next((name for name, folder in _own_folders().items() if path.startswith(folder)), "")
        elsewhere = variable and f"export {variable}=… another folder"
        remedy = path_remedy(path, error.errno, elsewhere) if variable else errno_remedy(error.errno)
        code = USAGE if variable else OURS
        print_error(kind, f"{path}{path and ': '}{error.strerror}", code, remedy=remedy)
        return code
    remedy = "" if flags.debug else "hermes-exec --debug …, which prints the traceback"
    print_error(kind, f"internal error: {kind}: {' '.join(str(error).split())}", INTERNAL, remedy=remedy)
    return INTERNAL
