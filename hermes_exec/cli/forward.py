"""``forward``: forward ports and unix sockets to or from a target."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import open_planned, plan_target
from hermes_exec.cli.options import Json, On
from hermes_exec.cli.output import show_json
from hermes_exec.errors import UsageError
from hermes_exec.terminal.forward import Endpoint

METAVAR = "LISTEN=TO"


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(forward)


def forward(
    forwards: Annotated[
        list[str],
        typer.Argument(metavar=METAVAR, help="Listen here, connect to: 8080, 8080=host:80, 0=/run/app.sock."),
    ],
    on: On = None,
    *,
    reverse: Annotated[bool, typer.Option("--reverse", "-R", help="Listen in the target, and connect here.")] = False,
    json: Json = False,
) -> int:
    """Forward connections to a target until Ctrl-C: 8080=80 forwards port 8080 here to port 80 there.

    Each end is PORT, HOST:PORT or the path of a unix socket; the default host is 127.0.0.1. A single port is used on
    both sides, and port 0 selects a free port. The command prints the address of each listener.
    """
    return interruptible.run(_forward(on, [_parse_forward(arg) for arg in forwards], reverse=reverse, json=json))


def _parse_forward(arg: str) -> tuple[Endpoint, Endpoint]:
    listen, equals, to = arg.partition("=")
    ends = Endpoint.parse(listen), Endpoint.parse(to if equals else listen)
    if ends[1].port == 0 and not ends[1].path:
        raise UsageError(f"{arg!r}: cannot connect to port 0", remedy=METAVAR)
    return ends


async def _forward(on: str | None, ends: list[tuple[Endpoint, Endpoint]], *, reverse: bool, json: bool) -> int:
    async with open_planned(plan_target(on)) as terminal, AsyncExitStack() as stack:
        forwards = [await terminal.forward(listen, to, reverse=reverse, on_failure=note) for listen, to in ends]
        for each in forwards:
            stack.push_async_callback(each.close)
            if json:
                show_json({"listen": str(each.address), "to": str(each.to), "reverse": reverse})
            else:
                sides = (terminal.target, "here") if reverse else ("here", terminal.target)
                print(f"{each.address} ({sides[0]}) -> {each.to} ({sides[1]})", flush=True)
        await asyncio.gather(*(each.wait() for each in forwards))
    return 0
