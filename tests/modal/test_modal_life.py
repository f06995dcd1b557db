"""A sandbox's life: found again, kept and taken up, moved, left to its jobs, ended when nobody needs it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, OutcomeUnknown, PlaceError, PlaceUnavailable, UsageError
from hermes_exec.observe.spending import sum_spent
from hermes_exec.result import ShellState
from hermes_exec.testing.place import link
from hermes_exec_backends.modal import ModalBackend, cleanup, migration, options
from tests.modal.conftest import Opened, wait_until_none_is_alive
from tests.rigs import modal
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rigs.apart import Apart

leave_out("takes long")


async def new(lease_s: float = 60.0, **profile: Any) -> hermes_exec.Terminal:
    return await hermes_exec.open(ModalBackend(modal.profile(**profile)), audit=False, lease_s=lease_s)


def snapshots(server: Apart) -> list[str]:
    return [name for name, lines in server.call("images").items() if not lines]


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_one_name_is_one_sandbox(run: Any, server: Apart, generation: str) -> None:
    async def work() -> None:
        first = await new(name="same", generation=generation)
        second = await new(name="same", generation=generation)
        await first.write("/tmp/said", b"by the first")
        assert await second.read("/tmp/said") == b"by the first"
        assert len(server.call("alive")) == 1
        await second.close()
        with pytest.raises(PlaceError):
            await first.run("true")
        await first.close()

    run(work())
    assert server.call("alive") == []


def test_a_sandbox_is_found_by_its_id_and_left_alive(run: Any, server: Apart) -> None:
    async def work() -> None:
        owner = await new()
        async with hermes_exec.open(
            ModalBackend(modal.profile(sandbox=server.call("alive")[0]["id"])), audit=False
        ) as visitor:
            await visitor.write("/tmp/x", b"x")
        assert await owner.read("/tmp/x") == b"x"
        await owner.close()

    run(work())
    assert server.call("alive") == []


@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_what_is_kept_is_there_at_the_next_opening_and_older_ones_are_gone(
    run: Any, server: Apart, generation: str
) -> None:
    before = len(snapshots(server))
    name = f"kept-{generation}"

    async def work() -> None:
        for turn in range(3):
            terminal = await new(name=name, generation=generation)
            assert (await terminal.run("cat /srv/turns 2>/dev/null | wc -l")).stdout.strip() == b"%d" % turn
            await terminal.run("echo x >> /srv/turns")
            await terminal.close(keep=True)
            assert server.call("alive") == []

    run(work())
    assert len(snapshots(server)) == before + 1


def test_files_that_cannot_be_kept_keep_the_sandbox_until_its_lease_ends(run: Any, server: Apart) -> None:
    async def work() -> None:
        terminal = await new(name="unkept", lease_s=2.0)
        server.call("fail", "TaskSnapshotFilesystem", status="INVALID_ARGUMENT", times=99)
        with pytest.raises(PlaceUnavailable):
            await terminal.close(keep=True)
        assert len(server.call("alive")) == 1

    run(work())
    wait_until_none_is_alive(server)


def test_a_snapshot_is_a_target(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.write("/srv/kept", b"kept")
            target = await terminal.snapshot("by-name")
            await terminal.write("/srv/kept", b"later")
        async with opened(image=target.removeprefix("modal:")) as terminal:
            assert await terminal.read("/srv/kept") == b"kept"

    run(work())
    assert any("by-name" in tag for tag in server.call("tags"))


def test_a_long_life_goes_on_in_a_new_sandbox_with_its_sessions_and_that_is_announced(
    run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(options, "LONGEST_S", 100)
    monkeypatch.setattr(migration, "BEFORE_S", 99.0)
    monkeypatch.setattr(migration, "ANNOUNCED_S", 0.5)
    announce = migration.announce

    async def work() -> None:
        time_to_move = asyncio.Event()

        async def announce_then(target: str, age_s: float) -> None:
            await time_to_move.wait()
            await announce(target, age_s)

        monkeypatch.setattr(migration, "announce", announce_then)
        backend = ModalBackend(modal.profile(name="long", timeout=101))
        with caplog.at_level(logging.WARNING, "hermes_exec.place"):
            terminal = await hermes_exec.open(backend, audit=False, lease_s=60.0)
            session = await terminal.session()
            await terminal.write("/srv/kept", b"kept")
            await session.run("cd /srv; here=1; f() { echo f $here; }; export here")
            job = await terminal.start("sleep 1000", name="long-one")
            running = asyncio.ensure_future(terminal.run(["sleep", "1000"]))
            states = f"{link(terminal).guest['folder']}/*/state"
            while (await terminal.run(["sh", "-c", f"grep -q here= {states}"])).exit_code:
                pass  # it is written down once the shell is idle
            time_to_move.set()
            with pytest.raises(OutcomeUnknown, match="the target migrated"):
                await running
            result = await session.run("f; pwd; cat kept")
            assert (result.stdout, result.shell) == (b"f 1\n/srv\nkept", ShellState.ROLLED_BACK)
            assert "the target had moved" in result.note
            assert (await session.run("f")).shell is ShellState.KEPT
            with pytest.raises(UsageError):
                await job.status()
        assert [sandbox["definition"]["timeout_secs"] for sandbox in server.call("alive")] == [100]
        await terminal.close()

    run(work())
    said = [record.getMessage() for record in caplog.records]
    assert "in 0.5 s its files and sessions go on in a new sandbox" in said[0]
    assert "jobs end when the target migrates: long-one" in said[1]
    assert "was moved to" in said[2]
    assert server.call("alive") == []


def test_a_moved_sandbox_lives_no_longer_than_the_cost_guard_allows_in_all(
    run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "LONGEST_S", 100)
    monkeypatch.setattr(migration, "BEFORE_S", 20.0)

    async def work() -> None:
        time_to_move = asyncio.Event()

        async def announce(*_: object) -> None:
            await time_to_move.wait()

        monkeypatch.setattr(migration, "announce", announce)
        backend: Any = ModalBackend(modal.profile(timeout=1000, hourly_cost=36.0, most_cost=1.5))  # 150 s
        async with hermes_exec.open(backend, audit=False):
            time_to_move.set()
            await backend._tasks[1]
            assert [sandbox["definition"]["timeout_secs"] for sandbox in server.call("alive")] == [70]

    run(work())


def vanish(backend: Any) -> None:
    """As if this process had been killed: nothing is renewed, and nothing is closed."""
    for task in backend._tasks:
        task.cancel()


def test_a_sandbox_whose_orchestrator_vanished_ends_with_its_lease(run: Any, server: Apart) -> None:
    async def work() -> None:
        backend = ModalBackend(modal.profile())
        await hermes_exec.open(backend, audit=False, lease_s=2.0)
        vanish(backend)
        assert len(server.call("alive")) == 1
        while server.call("alive"):
            await asyncio.sleep(0.1)

    run(work())


def test_a_lease_is_renewed_while_somebody_is_there(run: Any, server: Apart) -> None:
    async def work() -> None:
        terminal = await new(lease_s=2.0)
        await asyncio.sleep(5.0)
        assert (await terminal.run("echo here")).stdout == b"here\n"
        await terminal.close()

    run(work())


def test_jobs_hold_a_sandbox_that_was_left(run: Any, server: Apart) -> None:
    async def work() -> None:
        terminal = await new()
        job = await terminal.start("read x < /tmp/go; echo done > /tmp/done")
        await terminal.run("mkfifo /tmp/go")
        await terminal.close()
        (left,) = server.call("alive")
        async with hermes_exec.open(ModalBackend(modal.profile(sandbox=left["id"])), audit=False) as visitor:
            await visitor.run("echo x > /tmp/go", timeout=20)
        assert job.id

    run(work())
    assert len(server.call("alive")) <= 1


def test_reaping_ends_what_could_not_end_by_itself_and_nothing_else(run: Any, server: Apart) -> None:
    async def work() -> None:
        needed, backend = await new(), ModalBackend(modal.profile())
        stuck = await hermes_exec.open(backend, audit=False)
        place = backend.resource_id
        # Its first process cannot end it, as if that were stopped, and the lease was over long ago.
        await stuck.run("kill -STOP $(pgrep -of hermes-exec); echo 1000 > /tmp/.hermes-exec-lease")
        vanish(backend)
        swept = await cleanup.reap()
        assert [(each.target, each.left) for each in swept] == [(f"modal:@{place}", "")]
        assert (await needed.run("echo here")).stdout == b"here\n"
        await needed.close()

    run(work())
    assert server.call("alive") == []


def test_what_is_alive_is_told_with_its_size(
    run: Any, server: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def work() -> None:
        async with hermes_exec.open(ModalBackend(modal.profile(gpu="H100:2", cpu=4.0, hourly_cost=8.5)), audit=False):
            (alive,) = await ModalBackend.list_resources()
            assert alive.size == "4 CPU, H100:2"
            assert alive.hourly_cost == 8.5
            assert alive.since is not None
            assert "pid" in alive.owner
        async with hermes_exec.open(ModalBackend(modal.profile(gpu="H100:2", cpu=4.0, most_cost=1.0)), audit=False):
            (alive,) = await ModalBackend.list_resources()
            assert alive.hourly_cost == pytest.approx(2 * 3.9492 + 4 * 0.141912 + 0.125 * 0.024012, rel=1e-4)
            assert alive.price_source == "modal.com/pricing of 2026-10-08"
            (one,) = server.call("alive")
            assert one["definition"]["timeout_secs"] == int(3600 / (alive.hourly_cost or math.nan))
        assert await ModalBackend.list_resources() == []
        spent = sum_spent(0.0, time.time(), ())
        assert (spent.count, spent.is_estimated, spent.unknown) == (2, True, 0)
        assert spent.cost > 0

    run(work())


def test_the_cost_guard_refuses_before_anything_is_created(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        with pytest.raises(ConfigError, match="A100"):
            await new(gpu="A100:2", allowed_gpus=("T4",))
        async with opened(max_sandboxes=1, max_hours=2):
            with pytest.raises(PlaceUnavailable, match="1 sandboxes"):
                await new(max_sandboxes=1, max_hours=2)
            (one,) = server.call("alive")
            assert one["definition"]["timeout_secs"] == 3600

    run(work())
