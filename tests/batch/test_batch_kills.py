"""The coordinator and the shards are killed at seeded moments, then resumed: each trial has one result.

``./dev soak kills_of_a_batch`` is the full form, with 300 trials and 60 kills; ``HERMES_SOAK_SEED`` chooses its seed.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.config.check import profile_from_table
from hermes_exec_agent.batch.places import end_place, open_place
from hermes_exec_agent.batch.tasks import Task
from hermes_exec_agent.batch.trials import Trial
from tests.rigs.batches import BatchPerson, KilledRun
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import DEBIAN, engine

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.rigs.docker_engine import Engine

leave_out("takes long")

SEED = int(os.environ.get("HERMES_SOAK_SEED", "3"))


@pytest.fixture
def dock() -> Generator[Engine]:
    dock = engine()
    yield dock
    for each in dock.containers():
        dock.client.remove_container(each["Id"], force=True)


def configure_box(home: Path, dock: Engine) -> None:
    """Configure containers that see the marks of the attempts."""
    binds = [f"{home}/marks:{home}/marks:rw"]
    options = {"image": dock.image(DEBIAN), "engine": dock.address, "pull": "never", "binds": binds}
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    (home / ".config/hermes_exec").mkdir(parents=True)
    (home / ".config/hermes_exec/hermes.toml").write_text("\n".join(["[backends.box]", "type = 'docker'", *lines]))


def test_kills_lose_no_trial_and_repeat_none(tmp_path: Path) -> None:
    killed = KilledRun(BatchPerson(tmp_path), 8, on=["local"], seed=SEED, pause_s=3.0)
    counts = killed.run(3, concurrency=8, per_shard=4)
    assert counts.total() == 3
    killed.check()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_repeat_no_trial_in_containers(tmp_path: Path, dock: Engine) -> None:
    killed = KilledRun(BatchPerson(tmp_path), 6, on=["box"], seed=SEED)
    configure_box(tmp_path, dock)
    counts = killed.run(2, concurrency=3, per_shard=2)
    assert counts.total() == 2
    killed.check()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_kills_of_a_batch_on_two_targets(tmp_path: Path, dock: Engine) -> None:
    killed = KilledRun(BatchPerson(tmp_path), 300, on=["local", "box"], seed=SEED, pause_s=2.0, spread_s=10.0)
    configure_box(tmp_path, dock)
    counts = killed.run(60, concurrency=32, per_shard=8)
    assert counts["shard"] > 10
    assert counts["coordinator"] > 5
    assert counts["all"] > 5
    killed.check()
    # A container that was created and never started has no lease of its own; the engine's next user removes it.
    wait_until(lambda: {each["State"] for each in dock.containers()} <= {"created"})
    assert list(Path("/tmp").glob("hermes-trial.*")) == []


def test_a_container_of_another_machine_is_not_gone_because_it_is_not_here(
    monkeypatch: pytest.MonkeyPatch, dock: Engine
) -> None:
    image = dock.image(DEBIAN)
    monkeypatch.setenv("DOCKER_HOST", dock.address)
    table = {"type": "docker", "image": image, "pull": "never"}
    task = Task(id="t", instruction="work", check="true")

    async def scenario() -> tuple[str, str, str]:
        trial = Trial("0" * 24, task, "docker", "", 1)
        async with open_place(trial, 1, 30.0, profile_from_table(table, "test")) as place:
            record = place.to_record()
            other = record | {"machine": "node7 boot machine"}
        return await end_place(record), await end_place(other), await end_place(other | {"machine": ""})

    assert asyncio.run(scenario()) == ("gone already", "", "gone already")
