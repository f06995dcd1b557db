"""The relay in the sandbox: what it may be written in, how it begins, and what goes beside its connection."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_backends import daytona as package
from hermes_exec_backends.daytona import frames
from hermes_exec_backends.daytona.connection import Connection
from tests.rigs.daytona_rig import only

if TYPE_CHECKING:
    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_faults import Drop
    from tests.rigs.daytona_server import Daytona

SENT = [Path(package.__file__).with_name(f"{name}.py") for name in ("frames", "program", "staging_dir", "relay")]
FAST = {"_signal", "fcntl", "marshal", "os", "select", "struct", "termios", "time", "zlib"}


@pytest.mark.parametrize("path", SENT, ids=lambda path: path.stem)
def test_what_is_sent_has_the_grammar_of_3_6_and_imports_nothing_slow(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= FAST
        if isinstance(node, ast.ImportFrom):
            assert node.level == 1


def test_frames_arrive_in_whatever_pieces_they_come() -> None:
    sent = [(frames.OUT, number, os.urandom(number * 7)) for number in range(40)]
    stream = b"".join(frames.frame(kind, number, at, data) for at, (kind, number, data) in enumerate(sent))
    for size in (1, 3, 100, len(stream)):
        parser = frames.Parser()
        got = [found for at in range(0, len(stream), size) for found in parser.feed(stream[at : at + size])]
        assert got == sent


def test_what_a_shell_says_after_it_was_refused_changes_nothing() -> None:
    async def nobody_knows() -> str:
        return ""

    async def work() -> None:
        connection = Connection(["python3"], nobody_knows, 15.0)
        inside, received = vars(connection), vars(Connection)["_handle_data"]
        received(connection, inside["_none"].encode())
        received(connection, inside["_mark"])
        with pytest.raises(PlaceUnavailable, match="no Python 3.6 or later is there"):
            await inside["_ready"]

    asyncio.run(work())


@pytest.mark.parametrize("harm", ["lost", "changed", "repeated"])
def test_a_frame_that_is_lost_changed_or_repeated_is_noticed(harm: str) -> None:
    one, two = (frames.frame(frames.OUT, 1, number, b"data") for number in range(2))
    harmed = {"lost": two, "changed": one.replace(b"data", b"dara"), "repeated": one + one}[harm]
    with pytest.raises(ValueError, match="frame"):
        frames.Parser().feed(harmed)


@pytest.mark.parametrize("status", [500, 502])
def test_large_input_whose_move_fails_for_a_while_arrives_whole(
    run: Any, daytona: Daytona, opened: Opened, status: int
) -> None:
    data = os.urandom(6_000_000)

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            fault = daytona.fail("upload_files", status=status, times=2)
            result = await terminal.run(["sha256sum"], stdin=data)
            assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
            assert fault.met == 2

    run(work())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("drop", ["fin", "rst"])
@pytest.mark.parametrize("operation", ["upload_files", "download_files"])
def test_large_streams_whose_moves_break_arrive_whole(
    run: Any, daytona: Daytona, opened: Opened, operation: str, drop: Drop, when: str
) -> None:
    data = os.urandom(6_000_000)

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            fault = daytona.fail(operation, when=when, drop=drop, times=2)
            # All of it comes back at once, however slowly it went in.
            assert (await terminal.run(["sh", "-c", "cat >large; cat large"], stdin=data)).stdout == data
            assert fault.met

    run(work())


def test_moves_that_never_get_through_break_the_connection_and_lose_nothing(
    run: Any, daytona: Daytona, opened: Opened
) -> None:
    data = os.urandom(3_000_000)

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            fault = daytona.fail("upload_files", status=503, times=7)
            assert (await terminal.run(["cat"], stdin=data)).stdout == data
            assert fault.met == 7
            assert daytona.count("create_connect_pty") > 1

    run(work())


def test_what_came_for_a_relay_after_its_end_is_removed_by_the_next_one(
    run: Any, daytona: Daytona, opened: Opened
) -> None:
    late, foreign = ".hermes-exec-999999999-0123456789abcdef", ".hermes-exec-lease"

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run(f"mkdir /tmp/{late} /tmp/{foreign} /srv/others; touch /tmp/{late}/in-7 /srv/others/kept")
            await terminal.run(f"ln -s /srv/others /var/tmp/{late}; ln -s /srv/others /tmp/{late}/link")
            relays = daytona.count("create_connect_pty")
            await daytona.also(daytona.cut(only(daytona), "fin"))
            left = "ls -A /tmp /var/tmp | grep hermes-exec-999 | wc -l; ls /srv/others"
            while (said := (await terminal.run(left)).stdout) != b"1\nkept\n":
                assert said == b"2\nkept\n"
            assert daytona.count("create_connect_pty") > relays
            assert (await terminal.run(f"ls -d /tmp/{foreign} /tmp/.hermes-exec-[0-9]*-*")).exit_code == 0

    run(work())


def test_a_login_shell_that_prints_a_lot_is_no_hindrance(run: Any, daytona: Daytona, opened: Opened) -> None:
    noise = "head -c 60000 /dev/urandom; echo hx; export FROM_PROFILE=1\n"

    async def work() -> None:
        async with opened() as terminal:
            await terminal.write(".profile", noise.encode())
            await daytona.also(daytona.cut(next(iter(daytona.sandboxes.values())), "fin"))
            assert (await terminal.run("echo in")).stdout == b"in\n"

    run(work())


def test_a_sandbox_without_a_python_says_so(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_exec_backends.daytona.backend._PYTHONS", ("no-such-python",))

    async def work() -> None:
        with pytest.raises(HermesError, match="no Python 3.6 or later is there"):
            async with opened():
                pytest.fail("it was opened")

    run(work())


@pytest.mark.parametrize("fault", [{"status": 503}, {"drop": "fin"}, {"drop": "rst", "when": "after"}], ids=str)
def test_whole_files_go_by_the_vendor_and_arrive_whatever_it_does(
    run: Any, daytona: Daytona, opened: Opened, fault: dict[str, Any]
) -> None:
    data = os.urandom(9_000_000)

    async def work() -> None:
        async with opened() as terminal:
            before = daytona.count("upload_files"), daytona.count("download_file")
            await terminal.write("/srv/file", data)
            assert await terminal.read("/srv/file") == data
            assert (daytona.count("upload_files"), daytona.count("download_file")) == (before[0] + 3, before[1] + 1)
            up = daytona.fail("upload_files", times=5, **fault)
            await terminal.write("/srv/again", data)
            assert up.met >= 3
            daytona.recover()
            assert await terminal.read("/srv/again") == data
            down = daytona.fail("download_file", **fault)
            assert await terminal.read("/srv/file") == data
            assert down.met == 1
            assert (await terminal.run("find /var/tmp/hx-* -mindepth 1 ! -size 0")).stdout == b""

    run(work())
