"""A job in a container of a process that was killed is found again by others, and the container ends with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.rigs.docker_engine import DEBIAN
from tests.rigs.killed import Left

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rigs.docker_engine import Engine


def left_in(dock: Engine, folder: Path) -> Left:
    config = folder / "hermes.toml"
    options = {"image": dock.image(DEBIAN), "engine": dock.address, "pull": "never"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    config.write_text("\n".join(["[backends.box]", "type = 'docker'", "lease_s = 2", *lines]))
    return Left(folder, config, "box")


def test_other_processes_find_the_same_container(dock: Engine, tmp_path: Path) -> None:
    left = left_in(dock, tmp_path)
    before = [each["Id"] for each in dock.containers()]
    assert len(before) == 1
    left.ends_as_it_should()
    assert [each["Id"] for each in dock.containers()] == before
    left.forget()
    dock.wait_until_none()


def test_a_container_that_has_ended_is_forgotten_with_its_jobs(dock: Engine, tmp_path: Path) -> None:
    left = left_in(dock, tmp_path)
    for each in dock.containers():
        dock.client.remove_container(each["Id"], force=True)
    shown = left.cli("jobs")
    assert (shown.stdout, shown.returncode) == (b"", 0), shown.stderr
    assert left.records() == []
    dock.wait_until_none()
