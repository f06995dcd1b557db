"""The status of the interactive programs of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError
from hermes_exec.terminal.requests import format_command

if TYPE_CHECKING:
    from hermes_exec.transport.link import Link


@dataclass(frozen=True, slots=True)
class PtyStatus:
    """The status of one interactive program at one moment."""

    name: str
    """The name for ``Terminal.attach``."""
    command: str
    started: float
    """Seconds since 1970, by the target's clock."""
    tty: str
    """The path of its terminal in the target."""
    views: int
    """The number of attached clients."""
    ended: bool
    """Whether the program has ended, and its exit status was not read yet."""
    keep_s: float
    """Seconds that it keeps running after the last client detaches; 0 ends it with the terminal that started it."""

    output: tuple[int, int] | None = None
    """The numbers of the first byte of output that is kept and of the next one to come; None from an older guest."""

    @classmethod
    def from_answer(cls, fields: Any) -> PtyStatus:
        """Validate the answer of a guest.

        Raises:
            ProtocolError: a field is missing or not valid.
        """
        kinds = {"name": str, "started": float, "tty": str, "views": int, "ended": bool, "keep_s": float}
        try:
            argv: list[Any] = list(fields["argv"])
            values: dict[str, Any] = {name: fields[name] for name in kinds}
        except (KeyError, TypeError) as error:
            raise ProtocolError("the guest sent an invalid PTY status") from error
        if not all(isinstance(values[name], kind) for name, kind in kinds.items()) or not all(
            isinstance(argument, bytes) for argument in argv
        ):
            raise ProtocolError("the guest sent an invalid PTY status")
        return cls(command=format_command(argv), output=_parse_range(fields.get("output")), **values)


def _parse_range(found: Any) -> tuple[int, int] | None:
    """Return the range of kept output; None if the guest sent none, or an invalid one."""
    match found:
        case [int(start), int(end)] if 0 <= start <= end:
            return start, end
        case _:
            return None


async def list_ptys(link: Link) -> list[PtyStatus]:
    """Return the interactive programs of a guest, of every client, in the order of their starts."""
    answer = await link.request("pty.list", {})
    if answer.get("error") == "unsupported":  # it has not started any yet
        return []
    ptys: Any = answer.get("ptys")
    if not isinstance(ptys, list):
        raise ProtocolError("the guest sent an invalid list of PTYs")
    found = [PtyStatus.from_answer(fields) for fields in ptys]  # pyright: ignore[reportUnknownVariableType]  validated there
    return sorted(found, key=lambda status: status.started)
