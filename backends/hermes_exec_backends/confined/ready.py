"""From what a launcher tells to a run that may begin: read, held on to, and looked at with our own eyes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import ProtocolError, Unsupported
from hermes_exec_backends.confined import report
from hermes_exec_backends.confined.run import Run

if TYPE_CHECKING:
    from hermes_exec_backends.confined.bounds import Bounds
    from hermes_exec_backends.confined.held import Held
    from hermes_exec_backends.confined.report import Report
    from hermes_exec_backends.confined.spec import Confinement, Limits

_FAILED = b"failed "


def read_report(place: str, *messages: bytes) -> Report | None:
    """What was applied, by the launcher's two messages; None where it ended before it said both.

    Raises:
        Unsupported: it says that something required cannot be applied.
        ProtocolError: that is not what a launcher says.
    """
    for message in messages:
        if message.startswith(_FAILED):
            why = message.removeprefix(_FAILED).decode("utf-8", "replace")
            raise Unsupported(f"{place}: the sandbox cannot be confined as specified: {why}")
    if not all(messages):
        return None
    try:
        return report.parse(*messages)
    except ValueError as error:
        raise ProtocolError(f"{place}: {error}") from error


async def ready(
    held: Held, told: Report, confinement: Confinement, limits: Limits, bounds: Bounds | None = None
) -> Run:
    """A run of what is held, if it is what was specified.

    Raises:
        Unsupported: it is not; nothing of the program ran, and the sandbox is gone.
        PlaceUnavailable: it ended, or cannot be looked at.
    """
    run = Run(held, told, limits, bounds)
    try:
        for folder in confinement.tmpfs:
            run.keep(folder.target)
        _verify(run, confinement)
    except BaseException:
        await run.close()
        raise
    return run


def _verify(run: Run, confinement: Confinement) -> None:
    """See with our own eyes what has to be so for every sandbox, whatever the launcher said."""
    seen = run.facts
    wrong = [name for name, value in seen.caps.items() if value]
    if not seen.no_new_privs:
        wrong.append("no_new_privs")
    filtered = confinement.seccomp or confinement.filter_document
    if filtered and "seccomp" in confinement.required and seen.seccomp != 2:
        wrong.append("seccomp")
    ours = {name: Path("/proc/self/ns", name).stat().st_ino for name in confinement.namespaces}
    wrong += [f"the namespace {name}" for name, number in ours.items() if seen.namespaces[name] == number]
    if wrong:
        raise Unsupported(f"a sandbox is not what was specified, seen from outside: {', '.join(wrong)}")
