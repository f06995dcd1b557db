"""What a place says of its interactive programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError
from hermes_exec.terminal.requests import shown

if TYPE_CHECKING:
    from hermes_exec.transport.link import Link


@dataclass(frozen=True, slots=True)
class PtyStatus:
    """One interactive program, as it is now."""

    name: str
    """What ``Terminal.attach`` finds it by."""
    command: str
    started: float
    """Seconds since 1970, by the place's clock."""
    tty: str
    """Its terminal, in the place."""
    views: int
    """How many look at it."""
    ended: bool
    """Whether the program has ended, and its end waits for somebody to ask."""
    keep_s: float
    """Seconds that it lives on with nobody attached; 0 ends it with the terminal that started it."""

    @classmethod
    def from_answer(cls, fields: Any) -> PtyStatus:
        """Check what a guest says.

        Raises:
            ProtocolError: it makes no sense.
        """
        kinds = {"name": str, "started": float, "tty": str, "views": int, "ended": bool, "keep_s": float}
        try:
            argv: list[Any] = list(fields["argv"])
            values: dict[str, Any] = {name: fields[name] for name in kinds}
        except (KeyError, TypeError) as error:
            raise ProtocolError("the guest's account of a PTY makes no sense") from error
        if not all(isinstance(values[name], kind) for name, kind in kinds.items()) or not all(
            isinstance(word, bytes) for word in argv
        ):
            raise ProtocolError("the guest's account of a PTY makes no sense")
        return cls(command=shown(argv), **values)


async def list_ptys(link: Link) -> list[PtyStatus]:
    """The interactive programs of a guest, whoever started them, in the order of their starts."""
    answer = await link.request("pty.list", {})
    if answer.get("error") == "unsupported":  # nobody has asked it for one yet
        return []
    ptys: Any = answer.get("ptys")
    if not isinstance(ptys, list):
        raise ProtocolError("the guest's account of its PTYs makes no sense")
    found = [PtyStatus.from_answer(fields) for fields in ptys]  # pyright: ignore[reportUnknownVariableType]  looked at there
    return sorted(found, key=lambda status: status.started)
