"""The registration on an IRC server: with the server's password, or with an account and its password by SASL PLAIN."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.gateway.adapter import PlatformDown
from hermes_exec_agent.frontends.gateway.irc_lines import remove_codes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.irc_lines import Line

_PIECE = 400
"""Characters of a response in one line; a response of exactly so many is followed by an empty one."""
_FAILED = frozenset({"902", "904", "905", "906", "907", "908"})


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
