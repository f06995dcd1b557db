"""Random faults of every kind on the way to two targets at once, while commands, transfers and jobs run in both.

Nothing may be wrong, lost or doubled, no call may hang, and standard error stays empty. ``./dev soak storm`` is the
full form; ``HERMES_SOAK_S`` and ``HERMES_SOAK_SEED`` choose its length in seconds and its seed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.ssh import SshBackend
from tests.rigs import processes
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.breadth import thorough
from tests.rigs.disturbances import Disturber, Way
from tests.rigs.docker_engine import own_engine
from tests.rigs.faulty_proxy import FaultyProxy
from tests.rigs.sshd import ROOT, Sshd
from tests.rigs.storm_load import Load

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.rigs.docker_engine import Dockerd

_SHORT_S = 15.0
_FULL_S = float(os.environ.get("HERMES_SOAK_S", "1200"))
_SEED = int(os.environ.get("HERMES_SOAK_SEED", "1"))
_KEEPALIVE_S = 2.0
_LONGEST_S = 20.0
"""Longer than it takes to give up a silent peer."""
_LEASE_S = 60.0
"""Longer than every fault; a target that could not be reached when its terminal was closed ends after it."""
_LEASES: dict[str, Any] = {"lease_s": _LEASE_S, "job_lease_s": _LEASE_S}


@pytest.fixture
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="hx-storm-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def _python(pids: list[int]) -> list[int]:
    return [pid for pid in pids if processes.name(pid).startswith("python")]


def _over_ssh(stack: ExitStack, folder: Path, seed: int) -> tuple[Load, Way]:
    sshd = stack.enter_context(Sshd())
    proxy = stack.enter_context(FaultyProxy(("127.0.0.1", sshd.port)))
    known = sshd.folder / "known_hosts"
    known.write_text(known.read_text().replace(f":{sshd.port} ", f":{proxy.port} "))
    profile = sshd.profile(port=proxy.port, keepalive_s=_KEEPALIVE_S, connect_timeout_s=10.0, **_LEASES)
    uid = sshd.home().stat().st_uid
    listener = int((sshd.folder / "pid").read_text())

    def ours() -> list[int]:
        found = [pid for pid in processes.every() if processes.owner(pid) == uid]
        return _python(found) if ROOT else []

    way = Way("ssh", proxy, sshd.talking, ours, lambda: [listener])
    return Load("ssh", lambda: SshBackend(profile), (folder, str(folder)), seed, 3 * _KEEPALIVE_S), way


def _in_docker(stack: ExitStack, folder: Path, seed: int, dock: Dockerd) -> tuple[Load, Way]:
    proxy = stack.enter_context(FaultyProxy(dock.address.removeprefix("unix://"), str(folder / "proxy.sock")))
    binds = [f"{folder}:/shared:rw"]
    profile = dock.profile(engine=f"unix://{folder}/proxy.sock", binds=binds, keepalive_s=_KEEPALIVE_S, **_LEASES)

    def ours() -> list[int]:
        spaces = {processes.namespace(dock.inspect(each["Id"])["State"]["Pid"], "pid") for each in dock.containers()}
        return _python([pid for pid in processes.every() if processes.namespace(pid, "pid") in spaces - {""}])

    way = Way("docker", proxy, list, ours, lambda: [dock.pid])
    return Load("docker", lambda: DockerBackend(profile), (folder, "/shared"), seed, 3 * _KEEPALIVE_S), way


async def _run_all(loads: list[Load], until: float) -> None:
    await asyncio.gather(*(load.run(until) for load in loads))


async def _storm(loads: list[Load], disturbers: list[Disturber], seconds: float) -> list[dict[str, object]]:
    """Run the loads under the disturbers; returns what the event loop's exception handler was called with."""
    errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    until = time.monotonic() + seconds
    disturbing = [asyncio.ensure_future(disturber.run()) for disturber in disturbers]
    loading = asyncio.ensure_future(_run_all(loads, until))
    try:
        await asyncio.wait([loading, *disturbing], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in disturbing:
            each.cancel()
        ended = await asyncio.gather(*disturbing, return_exceptions=True)
    await loading
    for load in loads:
        load.check_record()
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
    return errors


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(_SHORT_S, id="short", marks=[thorough, pytest.mark.timeout(600)]),
        pytest.param(_FULL_S, id="full", marks=[pytest.mark.soak, pytest.mark.timeout(_FULL_S + 900)]),
    ],
)
def test_a_storm_leaves_no_wrong_byte_and_no_call_waiting(
    seconds: float, folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="storm")
    dock = own_engine()
    shared = [folder / "ssh", folder / "docker"]
    for each in shared:
        each.mkdir()
        each.chmod(0o777)
    with ExitStack() as stack:
        parts = [_over_ssh(stack, shared[0], _SEED), _in_docker(stack, shared[1], _SEED, dock)]
        loads = [load for load, _ in parts]
        longest_s = _LONGEST_S if seconds > _SHORT_S else 3.0
        disturbers = [Disturber(way, random.Random(f"{_SEED} {way.name}"), longest_s) for _, way in parts]
        for load, disturber in zip(loads, disturbers, strict=True):
            load.outage_s = disturber.outage_s
        errors = asyncio.run(_storm(loads, disturbers, seconds))
        with capfd.disabled():
            print(f"\nseed {_SEED}, {seconds:g} s")
            for load, disturber in zip(loads, disturbers, strict=True):
                print(f"{load.name}: {', '.join(f'{n} {what}' for what, n in sorted(disturber.count.items()))}")
                print("\n".join([f"{load.name}: {load.report}", *load.report.defects]))
        dock.wait_until_none(2 * _LEASE_S + PATIENCE_S)
    assert [line for load in loads for line in load.report.defects] == []
    for load, disturber in zip(loads, disturbers, strict=True):
        assert load.report.killed <= 4 * disturber.count["kill_ours"]
    assert errors == []
    assert capfd.readouterr().err == ""
    assert [record for record in caplog.records if record.exc_info or record.name == "asyncio"] == []
