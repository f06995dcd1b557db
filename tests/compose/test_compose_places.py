"""Places inside of each other: what is started goes through all of them, and so does a reconnection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.backend import Exit
from hermes_exec.errors import OutcomeUnknown, PlaceUnavailable
from hermes_exec.testing.place import link
from hermes_exec.transport.shell.target import run_helper
from tests.rigs.boxes import Box, Cell, can_isolate

if TYPE_CHECKING:
    from tests.conftest import Require

SHOW = 'printf "%s\n" "$BOXES"'


def nested(*names: str) -> Box:
    """The first name is the outermost one's."""
    box = Box(names[0])
    for name in names[1:]:
        box = Box(name, box)
    return box


def test_words_go_through_every_place_outermost_first() -> None:
    async def run() -> bytes:
        async with hermes_exec.open(nested("a", "b", "c"), audit=False) as terminal:
            return (await terminal.run(SHOW)).stdout

    assert asyncio.run(run()) == b"[a][b][c]\n"


def test_variables_reach_the_innermost_place_and_no_argv() -> None:
    async def run() -> tuple[Exit, bytes]:
        backend = nested("a", "b")
        look = 'grep -c "$KEY" /proc/$$/cmdline /proc/$PPID/cmdline; printf %s "$KEY"'
        reply = await run_helper(backend, ["sh", "-c", look], env={"KEY": "hidden value"})
        return reply.exit, reply.stdout.splitlines()[-1]

    assert asyncio.run(run()) == (Exit(code=0), b"hidden value")


def test_words_that_are_not_text_go_through_every_place() -> None:
    async def run() -> bytes:
        return (await run_helper(nested("a", "b"), ["printf", "%s", b"\xff 'x' $y\n"])).stdout

    assert asyncio.run(run()) == b"\xff 'x' $y\n"


def test_the_target_names_every_place() -> None:
    assert nested("a", "b").target == "box:b+box:a"


def test_places_are_opened_from_outside_and_closed_from_inside(tmp_path: Path) -> None:
    outer = Box("outer", folder=str(tmp_path / "one"))
    inner = Box("inner", outer, folder=str(tmp_path / "one" / "two"))  # can be neither made nor removed otherwise

    async def run() -> bool:
        async with hermes_exec.open(inner, audit=False):
            return (tmp_path / "one" / "two").is_dir()

    assert asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_a_broken_place_is_named_and_those_outside_are_closed(tmp_path: Path) -> None:
    outer = Box("outer", folder=str(tmp_path / "one"))
    middle = Box("middle", outer, folder=str(tmp_path / "none" / "two"))
    inner = Box("inner", middle, folder=str(tmp_path / "three"))

    with pytest.raises(PlaceUnavailable, match="box middle: .*none") as caught:
        asyncio.run(inner.open())
    assert caught.value.place == "box:middle+box:outer"
    assert list(tmp_path.iterdir()) == []


def test_a_cut_is_mended_through_every_place() -> None:
    async def run() -> tuple[bytes, bytes]:
        async with hermes_exec.open(nested("a", "b"), audit=False) as terminal:
            await terminal.run("x=kept")
            running = asyncio.ensure_future(terminal.run("sleep 0.5; echo done"))
            await asyncio.sleep(0)
            link(terminal).break_connection()
            return (await running).stdout, (await terminal.run("echo $x")).stdout

    assert asyncio.run(run()) == (b"done\n", b"kept\n")


def test_a_place_that_cannot_be_entered_again_says_so_and_loses_what_ran(require: Require) -> None:
    require("user namespaces", "places that nothing else can enter", usable=can_isolate())

    async def run() -> bool:
        async with hermes_exec.open(Cell("x"), audit=False) as terminal:
            promised = terminal.capabilities.reconnect
            running = asyncio.ensure_future(terminal.run("sleep 60"))
            await asyncio.sleep(0)
            link(terminal).break_connection()
            with pytest.raises(OutcomeUnknown, match="guest"):
                await running
            return promised

    assert asyncio.run(run()) is False
