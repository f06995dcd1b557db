"""What a dead orchestrator left in containers is come back to, and no container stays that nobody needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_exec import Orchestrator, Pool
from hermes_exec.pool.recovery import Fate
from tests.rigs.docker_engine import DEBIAN, Engine, engine

Bounded = Callable[..., None]

ORCHESTRATOR = """
import asyncio, sys
from hermes_exec import Orchestrator, Pool

async def main():
    async with Orchestrator({"p": Pool("box", warm=1, audit=False)}) as orchestrator:
        busy = await orchestrator.lease("p", key="alice")
        kept = await orchestrator.lease("p", key="bob")
        async with busy.terminal.stream("echo ran >>/data/trace; echo begun; sleep 1000") as running:
            await anext(running)
            await kept.terminal.start("read word; echo $word >>/data/trace; echo end", name="waits", stdin=True)
            while not orchestrator.status()["p"].ready:
                await asyncio.sleep(0.05)
            print("ready", flush=True)
            await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.fixture
def dock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Engine]:
    """An engine, with a profile of containers in it that see the folder of the test."""
    dock = engine()
    options = {"image": dock.image(DEBIAN), "engine": dock.address, "pull": "never", "binds": [f"{tmp_path}:/data:rw"]}
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    config = tmp_path / "hermes.toml"
    config.write_text("\n".join(["[backends.box]", "type = 'docker'", *lines]))
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(config))
    yield dock
    for each in dock.containers():
        dock.client.remove_container(each["Id"], force=True)


@contextmanager
def killed(dock: Engine) -> Generator[list[str]]:
    """The containers of one that was."""
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    argv = [sys.executable, "-c", ORCHESTRATOR]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        process.kill()
    assert told == "ready\n"
    found = [each["Id"] for each in dock.containers()]
    assert len(found) == 3
    yield found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_jobs_are_attached_to_in_their_container_and_the_other_containers_are_removed(
    tmp_path: Path, dock: Engine, bounded: Bounded, state: Path
) -> None:
    async def scenario(before: list[str]) -> None:
        async with Orchestrator({"p": Pool("box", audit=False)}) as orchestrator:
            found = {each.key: each for each in orchestrator.recovered}
            assert {key: each.fate for key, each in found.items()} == {
                "alice": Fate.REAPED,
                "bob": Fate.ATTACHED,
                "": Fate.REAPED,
            }
            (left,) = dock.containers()
            assert left["Id"] in before
            lease = found["bob"].lease
            assert lease is not None
            job = await lease.terminal.job(found["bob"].jobs[0].id)
            await job.write(b"once\n")
            assert (await job.wait()).stdout == b"end\n"
            await job.prune()
            await lease.release()
        assert dock.containers() == []
        assert list(state.iterdir()) == []

    with killed(dock) as before:
        bounded(scenario(before), 250)
    assert (tmp_path / "trace").read_text() == "ran\nonce\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_start_that_reaps_leaves_only_the_container_of_the_job_which_ends_after_it(
    dock: Engine, bounded: Bounded, state: Path
) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool("box", audit=False)}, recover="reap") as orchestrator:
            fates = {each.key: each.fate for each in orchestrator.recovered}
            assert fates == {"alice": Fate.REAPED, "bob": Fate.LEFT, "": Fate.REAPED}
        assert list(state.iterdir()) == []
        assert len(dock.containers()) == 1

    with killed(dock):
        bounded(scenario(), 250)
    attached = subprocess.run(
        [sys.executable, "-m", "hermes_exec", "attach", "waits"], check=True, input=b"on\n", capture_output=True
    )
    assert attached.stdout == b"end\n"
    subprocess.run([sys.executable, "-m", "hermes_exec", "jobs", "--prune"], check=True, capture_output=True)
    dock.wait_until_none(120)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_containers_that_are_gone_are_forgotten(dock: Engine, bounded: Bounded, state: Path) -> None:
    async def scenario() -> None:
        async with Orchestrator({"p": Pool("box", audit=False)}) as orchestrator:
            assert {each.fate for each in orchestrator.recovered} == {Fate.GONE}
        assert list(state.iterdir()) == []
        assert dock.containers() == []

    with killed(dock) as containers:
        for each in containers:
            dock.client.remove_container(each, force=True)
        bounded(scenario(), 250)
