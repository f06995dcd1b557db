"""``forward``: ports and unix sockets, between here and a place."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import opened, planned
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import show_json
from hermes_exec.errors import UsageError
from hermes_exec.terminal.forward import Endpoint

WORDS = "LISTEN=TO"


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(forward)


def forward(
    ways: Annotated[
        list[str],
        typer.Argument(metavar=WORDS, help="8080, 8080=host:80, 0=/run/app.sock: where to listen, what to connect to."),
    ],
    on: On = None,
    *,
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="Listen in the place, and connect here.")] = False,
    json: Json = False,
) -> int:
    """Pass connections on, from here to a place until Ctrl-C: 8080=80 connects our port 8080 to its port 80.

    Each end is PORT, HOST:PORT or the path of a unix socket; without a host it is 127.0.0.1. A single
    port is used on both sides, and 0 is any port that is free. Once it listens, it says where.
    """
    return interruptible.run(_forward(on, [_way(word) for word in ways], reverse=reverse, json=json))


def _way(word: str) -> tuple[Endpoint, Endpoint]:
    listen, equals, to = word.partition("=")
    ends = Endpoint.parse(listen), Endpoint.parse(to if equals else listen)
    if ends[1].port == 0 and not ends[1].path:
        raise UsageError(f"{word!r}: nothing can be connected to port 0", remedy=WORDS)
    return ends


async def _forward(on: str | None, ways: list[tuple[Endpoint, Endpoint]], *, reverse: bool, json: bool) -> int:
    async with opened(planned(on)) as terminal, AsyncExitStack() as stack:
        forwards = [await terminal.forward(listen, to, reverse=reverse, on_failure=note) for listen, to in ways]
        for each in forwards:
            stack.push_async_callback(each.close)
            if json:
                show_json({"listen": str(each.address), "to": str(each.to), "reverse": reverse})
            else:
                sides = (terminal.target, "here") if reverse else ("here", terminal.target)
                print(f"{each.address} ({sides[0]}) -> {each.to} ({sides[1]})", flush=True)
        await asyncio.gather(*(each.wait() for each in forwards))
    return 0
