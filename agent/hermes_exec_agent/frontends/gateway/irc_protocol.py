"""The protocol of IRC: lines and their parts, messages in them, and the registration on a server."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, NamedTuple

from hermes_exec_agent.frontends.gateway.adapter import Incoming, PlatformDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec.config.secrets import Secret

_CODES = re.compile(r"\x03\d{0,2}(?:,\d{1,2})?|[\x00-\x1f\x7f]")
_LINE = re.compile(r"(?:@\S+ )?(?::(\S+) )?(\S+)(?: ([^:].*?|))?(?: ?:(.*))?")
_PIECE = 400
"""Characters of a response in one line; a response of exactly so many is followed by an empty one."""
_FAILED = frozenset({"902", "904", "905", "906", "907", "908"})


class Line(NamedTuple):
    """The parts of a line; empty ones were not there."""

    prefix: str = ""
    command: str = ""
    middle: str = ""
    """The parameters but the last."""
    text: str = ""


def parse_line(data: bytes) -> Line:
    """Return the parts of a line; empty parts for one that is not of IRC."""
    found = _LINE.fullmatch(data.decode(errors="replace").rstrip("\r\n"))
    return Line(found[1] or "", found[2], found[3] or "", found[4] or "") if found else Line()


def remove_codes(text: str) -> str:
    """Return text without codes for colours and the like, and without other control characters."""
    return _CODES.sub("", text)


def parse_message(line: Line, nick: str, id: str) -> Incoming | None:
    """Return the message to ``nick`` or to a channel; None for a server's line, or a request of CTCP."""
    if "!" not in line.prefix or line.text.startswith("\x01"):
        return None
    target = line.middle.split(" ")[0]
    text, is_group = remove_codes(line.text).strip(), target[:1] in "#&+!"
    called = re.fullmatch(rf"@?{re.escape(nick)}[:,]?\s+(.*)", text, re.IGNORECASE) if is_group else None
    text = called[1] if called else text
    if re.match(r"![a-z]", text):  # clients of IRC keep lines with a slash for themselves
        text = f"/{text[1:]}"
    chat = target.lower() if is_group else line.prefix.partition("!")[0]
    return Incoming(chat, id, line.prefix.lower(), text, is_group=is_group, is_mention=called is not None)


async def register(
    nick: str,
    account: str,
    password: Secret | None,
    write: Callable[[str], Awaitable[None]],
    read: Callable[[], Awaitable[Line]],
) -> None:
    """Send what a server needs before it answers with a welcome.

    Args:
        nick: the name of the agent.
        account: the account that the password is for; empty if it is the server's.
        password: a password, if there is one.
        write: sends a line.
        read: returns the next line.

    Raises:
        PlatformDown: the server offers no SASL, or refuses the account; the registration is not completed without it.
    """
    if account:
        await write("CAP REQ :sasl")
    elif password is not None:
        await write(f"PASS :{password.reveal()}")
    await write(f"NICK {nick}")
    await write(f"USER {nick} 0 * :hermes-exec gateway")
    if account and password is not None:
        await _authenticate(account, password, write, read)
        await write("CAP END")


async def _authenticate(
    account: str, password: Secret, write: Callable[[str], Awaitable[None]], read: Callable[[], Awaitable[Line]]
) -> None:
    while True:
        line = await read()
        given = line.text or line.middle
        if line.command == "PING":
            await write(f"PONG :{given}")
        elif line.command == "CAP" and "ACK" in line.middle.split(" "):
            await write("AUTHENTICATE PLAIN")
        elif line.command == "AUTHENTICATE":
            for piece in encode_plain(account, password.reveal()):
                await write(f"AUTHENTICATE {piece}")
        elif line.command == "903":
            return
        elif line.command in {"CAP", "421", "001"}:  # refused, unknown, or the server went on without it
            raise PlatformDown("the server offers no SASL")
        elif line.command in _FAILED:
            raise PlatformDown(f"the server refuses the account: {remove_codes(line.text)}")
        elif line.command in {"432", "433", "464", "465", "ERROR"}:
            raise PlatformDown(f"the server refuses the registration: {remove_codes(line.text)}")


def encode_plain(account: str, password: str) -> list[str]:
    """Return the lines of a response by PLAIN."""
    text = base64.b64encode(f"{account}\0{account}\0{password}".encode()).decode()
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    return [*pieces, "+"] if len(pieces[-1]) == _PIECE else pieces
