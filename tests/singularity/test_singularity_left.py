"""A job in a container that a process created which was killed is found again by others."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.rigs import apptainer
from tests.rigs.bounded import wait_until
from tests.rigs.killed import Left

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the containers of a test make their folders."""
    folder = tmp_path_factory.mktemp("folders")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("warm", [True, False])
def test_other_processes_find_the_same_container(
    tree: Path, instances: Callable[[Path], list[str]], tmp_path: Path, folders: Path, warm: bool
) -> None:
    config = tmp_path / "hermes.toml"
    options = f"image = {json.dumps(str(tree))}\nwarm = {str(warm).lower()}\nlease_s = 2"
    config.write_text(f"[backends.box]\ntype = 'singularity'\n{options}\n")
    left = Left(tmp_path, config, "box")
    before = instances(tree)
    assert len(before) == int(warm)
    left.ends_as_it_should()
    assert instances(tree) == before
    left.forget()
    wait_until(lambda: instances(tree) == [] and list(folders.iterdir()) == [])


def test_a_container_that_has_ended_is_forgotten_with_its_jobs(
    tree: Path, instances: Callable[[Path], list[str]], tmp_path: Path, folders: Path
) -> None:
    config = tmp_path / "hermes.toml"
    config.write_text(f"[backends.box]\ntype = 'singularity'\nimage = {json.dumps(str(tree))}\nlease_s = 2\n")
    left = Left(tmp_path, config, "box")
    (name,) = instances(tree)
    subprocess.run([apptainer.program(), "-s", "instance", "stop", "-F", name], check=True)
    wait_until(lambda: instances(tree) == [] and list(folders.iterdir()) == [])
    shown = left.cli("jobs")
    assert (shown.stdout, shown.returncode) == (b"", 0), shown.stderr
    assert left.records() == []
    assert instances(tree) == []
