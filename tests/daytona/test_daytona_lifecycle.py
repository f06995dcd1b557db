"""The life of a sandbox: kept, woken, attached to, left to jobs, forgotten, and never more than was asked for."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, PlaceUnavailable
from hermes_exec_backends._shared import labels, lease
from hermes_exec_backends._shared.lease import renewal_interval
from hermes_exec_backends.daytona import backend as module
from hermes_exec_backends.daytona.options import intervals
from hermes_exec_backends.profiles import DaytonaProfile
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_backends.daytona import DaytonaBackend
    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_server import Daytona

leave_out("takes long")


@pytest.fixture(autouse=True)
def account(daytona: Daytona, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found without a profile."""
    monkeypatch.setenv("DAYTONA_API_KEY", daytona.key)
    monkeypatch.setenv("DAYTONA_API_URL", daytona.api_url)


@pytest.mark.parametrize("archived", [False, True])
def test_a_kept_sandbox_is_stopped_and_the_next_open_finds_its_files(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend], archived: bool
) -> None:
    async def work() -> None:
        terminal = await hermes_exec.open(backend(name="box"), audit=False)
        await terminal.run("echo here > /srv/file; sleep 1000 &")
        await terminal.close(keep=True)
        (sandbox,) = daytona.sandboxes.values()
        assert (sandbox.state, sandbox.auto_delete) == ("stopped", -1)
        assert sandbox.labels[labels.STATE] == "kept"
        if archived:
            await daytona.also(sandbox.archive())
        again = await hermes_exec.open(backend(name="box"), audit=False)
        assert (await again.run("cat /srv/file; pgrep -f 'sleep 1000'")).stdout == b"here\n"
        assert (sandbox.state, sandbox.auto_delete) == ("started", 0)
        assert sandbox.labels[labels.STATE] == "open"
        assert daytona.count("create_sandbox") - before == 1
        await again.close()
        assert not daytona.sandboxes

    before = daytona.count("create_sandbox")
    run(work())


def test_a_kept_sandbox_without_a_name_is_found_by_the_target_of_the_terminal(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        terminal = await hermes_exec.open(made := backend(), audit=False)
        await terminal.run("echo here > /srv/file")
        place, target = made.resource_id, made.target
        assert target == f"daytona:@{place}"
        await terminal.close(keep=True)
        again = await hermes_exec.open(backend(sandbox=place), audit=False)
        assert (await again.run("cat /srv/file")).stdout == b"here\n"
        await again.close()
        (sandbox,) = daytona.sandboxes.values()
        assert sandbox.state == "stopped"  # as it was found
        await daytona.also(daytona.clear())

    run(work())


def test_a_sandbox_that_runs_already_is_left_running(
    run: Any, daytona: Daytona, opened: Opened, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        async with opened(name="theirs") as terminal:
            async with hermes_exec.open(backend(sandbox="theirs"), audit=False) as other:
                await other.run("echo x > /srv/shared")
            assert (await terminal.run("cat /srv/shared")).stdout == b"x\n"

    run(work())


def test_a_name_that_somebody_elses_sandbox_has_is_refused(
    run: Any, daytona: Daytona, opened: Opened, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        async with opened(name="theirs"):
            (sandbox,) = daytona.sandboxes.values()
            ours, sandbox.labels = sandbox.labels, {"made": "by hand"}
            with pytest.raises(PlaceUnavailable, match="was not created by us"):
                await backend(name="theirs").open()
            assert sandbox.state == "started"
            sandbox.labels = ours

    run(work())


def test_a_named_sandbox_that_has_failed_is_replaced(
    run: Any, daytona: Daytona, opened: Opened, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        await backend(name="box").open()
        (failed,) = daytona.sandboxes.values()
        await daytona.also(failed.die())
        async with opened(name="box") as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"
            assert failed.id not in daytona.sandboxes

    run(work())


def test_a_crash_leaves_no_bill(run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]) -> None:
    async def crash() -> None:
        terminal = await hermes_exec.open(backend(), audit=False, lease_s=200.0)
        await terminal.run("sleep 1000 &")
        (sandbox,) = daytona.sandboxes.values()
        assert (sandbox.auto_stop, sandbox.auto_delete) == (4, 0)

    run(crash())
    daytona.minute_s = 0.05
    daytona.do(daytona.until(lambda: not daytona.sandboxes))


@pytest.mark.parametrize("lease_s", [1.0, 60.0, 900.0, 86400.0])
def test_signs_come_at_most_once_a_minute_and_before_the_vendor_stops_it(lease_s: float) -> None:
    stop_s = 60.0 * intervals(DaytonaProfile(), lease_s)["auto_stop_interval"]
    assert stop_s >= lease_s
    assert 60.0 <= renewal_interval(stop_s, module.SHORTEST_INTERVAL_S) <= stop_s / 3


def test_an_idle_terminal_asks_for_nothing(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            before = list(daytona.calls)
            await asyncio.sleep(2)
            assert daytona.calls == before

    run(work())


def test_signs_of_life_keep_a_sandbox_in_use(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHORTEST_INTERVAL_S", 0.05)
    monkeypatch.setattr(lease, "_RENEWALS", 10_000)

    async def work() -> None:
        async with opened() as terminal:
            running = asyncio.ensure_future(terminal.run("read x < /srv/pipe || sleep 1000; echo in", timeout=40))
            (sandbox,) = daytona.sandboxes.values()
            daytona.minute_s = 0.2
            seen = daytona.count("update_last_activity")
            await daytona.also(daytona.until(lambda: daytona.count("update_last_activity") > seen + 60))
            assert sandbox.state == "started"
            running.cancel()

    run(work())


def test_a_sandbox_with_jobs_goes_on_without_us_until_its_guest_has_ended(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        terminal = await hermes_exec.open(backend(job_lease_s=7200.0), audit=False)
        await terminal.start(["sleep", "1000"])
        await terminal.close()
        (sandbox,) = daytona.sandboxes.values()
        assert (sandbox.state, sandbox.auto_stop, sandbox.labels[labels.STATE]) == ("started", 120, "jobs")
        assert await module.DaytonaBackend.reap() == []
        assert sandbox.cell is not None
        await daytona.also(sandbox.cell.exec(["pkill", "-TERM", "-o", "-f", "load.*main"]))  # the guest's keeper
        swept: list[Any] = []
        while not swept:
            swept = await module.DaytonaBackend.reap()
        assert [each.target for each in swept] == [f"daytona:@{sandbox.name}"]
        assert not daytona.sandboxes

    run(work())


def test_reaping_deletes_what_nobody_needs_and_nothing_else(
    run: Any, daytona: Daytona, opened: Opened, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        async with opened(name="in-use"):
            kept = await hermes_exec.open(backend(name="kept"), audit=False)
            await kept.close(keep=True)
            lost = backend(name="lost", auto_stop_min=0)
            await lost.open()
            failed = backend(name="failed")
            await failed.open()
            by_name = {sandbox.name: sandbox for sandbox in daytona.sandboxes.values()}
            await daytona.also(by_name["failed"].die())
            by_name["lost"].seen_at = "2020-01-01T00:00:00+00:00"
            swept = await module.DaytonaBackend.reap()
            assert sorted(each.target for each in swept) == ["daytona:@failed", "daytona:@lost"]
            assert sorted(sandbox.name for sandbox in daytona.sandboxes.values()) == ["in-use", "kept"]
            await daytona.also(by_name["kept"].destroy())

    run(work())


def test_what_is_alive_is_told_with_its_size_and_its_age(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def work() -> None:
        async with opened(name="big", cpu=2, memory="4 GiB", gpu="H100:2", hourly_cost=3.25):
            (alive,) = await module.DaytonaBackend.list_resources()
            assert (alive.target, alive.state) == ("daytona:@big", "started")
            assert alive.size == "2 CPU, 4 GiB, 3 GiB disk, 2 x H100"
            assert alive.hourly_cost == 3.25
            assert alive.since is not None
            assert time.time() - alive.since < 60
            assert "pid" in alive.owner
        async with opened(name="plain", cpu=2, memory="3.5 GiB", most_cost=0.4):
            (alive,) = await module.DaytonaBackend.list_resources()
            assert alive.hourly_cost == pytest.approx(2 * 0.0504 + 4 * 0.0162 + 3 * 0.000108)
            assert alive.price_source == "daytona.io/pricing of 2026-05-25"
            (sandbox,) = daytona.sandboxes.values()
            assert sandbox.ttl == math.floor(60 * 0.4 / (alive.hourly_cost or math.nan))
        with pytest.raises(ConfigError, match="most_cost needs a price"):
            async with opened(snapshot="mine", most_cost=1.0):
                pytest.fail("it was opened")

    run(work())


def test_more_sandboxes_than_the_profile_allows_are_refused_before_anything_is_created(
    run: Any, daytona: Daytona, opened: Opened
) -> None:
    async def work() -> None:
        async with opened(max_sandboxes=1):
            before = daytona.count("create_sandbox")
            with pytest.raises(PlaceUnavailable, match="allows 1 sandboxes of this profile, and 1 are alive"):
                async with opened(max_sandboxes=1):
                    pytest.fail("it was opened")
            assert daytona.count("create_sandbox") == before
            async with opened(max_sandboxes=1, tags={"another": "profile"}):
                assert len(daytona.sandboxes) == 2

    run(work())


def test_the_longest_life_is_the_vendors_to_keep(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def work() -> None:
        async with opened(max_hours=2):
            (sandbox,) = daytona.sandboxes.values()
            assert sandbox.ttl == 120

    run(work())


def test_a_kept_sandbox_that_is_older_than_allowed_is_not_started(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        terminal = await hermes_exec.open(backend(name="old"), audit=False)
        await terminal.close(keep=True)
        (sandbox,) = daytona.sandboxes.values()
        sandbox.labels[labels.CREATED] = str(time.time() - 7300)
        with pytest.raises(PlaceUnavailable, match="allows 2 hours, and this sandbox is older"):
            await hermes_exec.open(backend(name="old", max_hours=2), audit=False)
        assert sandbox.state == "stopped"
        await daytona.also(sandbox.destroy())

    run(work())
