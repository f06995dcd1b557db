"""Containers from the command line: what was started in one is found by the next command, and nothing stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.cli.app import start
from tests.rigs.docker_engine import DEBIAN

if TYPE_CHECKING:
    from tests.rigs.docker_engine import Engine


@pytest.fixture(autouse=True)
def _configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dock: Engine) -> None:
    file = tmp_path / "hermes.toml"
    profile = f'[backends.sandbox]\ntype = "docker"\nimage = "{dock.image(DEBIAN)}"\npull = "never"\n'
    file.write_text(f'{profile}engine = "{dock.address}"\n')
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(file))


def test_a_command_runs_in_a_container_of_its_own(capfd: pytest.CaptureFixture[str], dock: Engine) -> None:
    assert start(["run", "--on", "sandbox", "--", "sh", "-c", "cat /proc/1/comm; exit 3"]) == 3
    assert capfd.readouterr().out == "sh\n"
    assert dock.containers() == []


def test_a_job_is_found_in_its_container_which_ends_when_the_job_is_forgotten(
    capfd: pytest.CaptureFixture[str], dock: Engine
) -> None:
    assert start(["run", "--detach", "--on", "sandbox", "--", "sh", "-c", "echo out; sleep 1000"]) == 0
    job = capfd.readouterr().out.split()[0]
    assert start(["jobs", "--json"]) == 0
    (told,) = json.loads(capfd.readouterr().out)
    assert (told["job"], told["state"], told["target"]) == (job, "running", "sandbox")
    assert len(dock.containers()) == 1  # looking has started no other
    assert start(["kill", job, "--grace", "0s"]) == 0
    assert start(["logs", job]) == 0
    assert "out\n" in capfd.readouterr().out
    assert start(["jobs", "--prune"]) == 0
    dock.wait_until_none()


def test_jobs_of_a_container_that_is_gone_are_forgotten(capfd: pytest.CaptureFixture[str], dock: Engine) -> None:
    assert start(["run", "--detach", "--on", "sandbox", "--", "sleep", "1000"]) == 0
    dock.client.remove_container(dock.containers()[0]["Id"], force=True)
    capfd.readouterr()
    assert start(["jobs", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == []
