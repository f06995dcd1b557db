"""One run of a trainer: a person's program in the foreground, and the adapters that it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.rl.adapters import record_adapter, scan_adapters
from hermes_exec_agent.rl.group_record import hold_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from hermes_exec_agent.rl.adapters import Adapter

URL, FOLDER, ADAPTERS = "HERMES_EXEC_RL_URL", "HERMES_EXEC_RL_FOLDER", "HERMES_EXEC_RL_ADAPTERS"
"""Variables of a trainer."""
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class TrainingEnd:
    """How a trainer ended, and what it left."""

    reason: str
    """Why it failed; empty if it did not."""
    adapters: Sequence[Adapter]
    """New adapters, the newest first; each is recorded."""
    faults: Mapping[Path, str]
    """Folders that have none that can be loaded, with the reason."""


def run_training(argv: Sequence[str], folder: Path, adapters: Path, url: str) -> TrainingEnd:
    """Run a trainer until it ends, and record each new adapter that it leaves.

    Raises:
        UsageError: there is no such program, a path is not a folder, or another trainer writes there.
        HermesError: the folder cannot be written.
    """
    for each in (folder, adapters):
        _make_folder(each)
    with hold_folder(folder, "train.lock", "another trainer runs there") as lock:
        before = {each.digest for each in scan_adapters(adapters)[0]}
        variables = {URL: url, FOLDER: str(folder.absolute()), ADAPTERS: str(adapters.absolute())}
        reason = _run_program(argv, {**os.environ, **variables}, lock)
        found, faults = scan_adapters(adapters)
        new = [each for each in found if each.digest not in before]
        for adapter in new:
            record_adapter(folder, adapter)
    return TrainingEnd(reason, new, faults)


def _make_folder(path: Path) -> None:
    try:
        make_private_folder(path)
    except (NotADirectoryError, FileExistsError):
        raise UsageError(f"{to_printable(path)}: it is not a folder", remedy="another folder") from None
    except OSError as error:
        raise HermesError(f"{to_printable(path)}: {error.strerror}") from error


def _run_program(argv: Sequence[str], environ: Mapping[str, str], lock: int) -> str:
    """Run a program with our terminal; return why it failed, or an empty text.

    It inherits the lock, so that it holds its folder if we are killed.
    The terminal sends its Ctrl-C to the program as well as to us, so it is ours to wait. Other signals are passed on.
    """
    with _receive_signals() as attach:
        try:
            process = subprocess.Popen(argv, env=environ, pass_fds=[lock])
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"{to_printable(argv[0])}: {text}", remedy="the command line of a trainer") from None
        attach(process)
        code = process.wait()
    if code < 0:
        return f"the trainer was killed by {signal.Signals(-code).name}"
    return f"the trainer ended with exit code {code}" if code else ""


@contextmanager
def _receive_signals() -> Generator[Callable[[subprocess.Popen[bytes]], None]]:
    """Wait for the program at Ctrl-C, and pass other signals on to it; yield the function that names it."""
    programs: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def receive(number: int, _: object) -> None:
        if number == signal.SIGINT:
            return
        for each in programs:
            each.send_signal(number)
        if not programs:
            early.append(number)

    def attach(program: subprocess.Popen[bytes]) -> None:
        programs.append(program)
        for number in early:
            program.send_signal(number)

    before = {each: signal.getsignal(each) for each in _ENDS}
    chosen = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for each in chosen:
        signal.signal(each, receive)
    try:
        yield attach
    finally:
        for each in chosen:
            signal.signal(each, before[each])
