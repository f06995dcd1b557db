"""``demo``: the whole job in a place, with and without a network, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from hermes_exec.cli.demo import source
from hermes_exec.errors import PlaceUnavailable
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli
    from tests.conftest import Require

pytestmark = pytest.mark.slow

BUNDLED_TESTS = 12
NO_INDEX = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}


@pytest.fixture(autouse=True)
def temporary(cli: Cli, tmp_path: Path) -> Path:
    """Where temporary folders are made, here and in the place; empty but for what a demo makes."""
    (tmp_path / "tmp").mkdir()
    cli.env["TMPDIR"] = str(tmp_path / "tmp")
    return tmp_path / "tmp"


@thorough
def test_the_bundled_project_is_installed_tested_and_reported(cli: Cli, tmp_path: Path) -> None:
    done = cli("demo", "--offline", "--on", "local", "--reports", str(tmp_path / "reports"))
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.decode().splitlines()
    assert re.split(r" {2,}", head)[:5] == ["TARGET", "COLD OPEN", "COMMAND IN A SESSION", "PROGRAM", "JOB"]
    assert row.split()[0] == "local"
    assert row.endswith(f"{BUNDLED_TESTS} passed")
    for step in (
        b"uploading",
        b"creating a virtual environment",
        b"installing",
        b"running its tests",
        b"[100%]",
    ):
        assert step in done.stderr
    (report,) = (tmp_path / "reports").iterdir()
    assert len(ET.parse(report).getroot().findall("testcase")) == BUNDLED_TESTS


@thorough
def test_it_can_be_run_again_and_leaves_nothing(cli: Cli, temporary: Path) -> None:
    done = cli("--quiet", "demo", "--offline", "--on", "local", "--json")
    assert not list(temporary.iterdir())
    assert done.stderr == b""
    told = json.loads(done.stdout)
    (place,) = told["places"]
    assert place["passed"]
    assert place["counts"] == {"tests": BUNDLED_TESTS, "failures": 0, "errors": 0, "skipped": 0}
    assert all(place[key] > 0 for key in ("open_s", "session_s", "program_s", "job_s"))


@thorough
def test_without_a_network_it_says_so_and_goes_on(cli: Cli) -> None:
    done = cli("demo", "--on", "local", env=NO_INDEX)
    assert done.returncode == 0, done.stderr
    assert b"using the bundled project instead" in done.stderr
    assert f"{BUNDLED_TESTS} passed".encode() in done.stdout


def test_a_place_that_fails_is_a_row_and_the_exit_code(cli: Cli) -> None:
    cli.configure('[backends.here]\ntype = "local"\npython = "/no/such/python"\ncarrier = "guest"\n')
    done = cli("demo", "--offline", "--on", "here")
    assert done.returncode == 1
    assert b"failed: " in done.stdout
    assert b"/no/such/python" in done.stdout


@thorough
def test_only_a_place_that_was_asked_for_has_to_open(cli: Cli, require: Require, tmp_path: Path) -> None:
    require("apptainer", "a kind of place that is found here, and whose image cannot be had")
    cli.env |= {
        "DOCKER_HOST": "unix:///nowhere",
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "APPTAINER_CACHEDIR": str(tmp_path / "images"),
    }
    found = cli("demo", "--offline", "--json")
    told = json.loads(found.stdout)
    assert found.returncode == 0, found.stderr
    assert [place["target"] for place in told["places"]] == ["local"]
    assert "docker://python" in told["unusable"]["singularity"]
    asked = cli("demo", "--offline", "--json", "--on", "singularity:docker://python:3.11-slim")
    assert asked.returncode == 1
    assert "docker://python" in json.loads(asked.stdout)["places"][0]["trouble"]


@pytest.mark.parametrize("step", [b"creating a virtual environment", b"running its tests"])
@thorough
def test_ctrl_c_cleans_up(cli: Cli, temporary: Path, step: bytes) -> None:
    child = cli.start("demo", "--offline", "--on", "local")
    while step not in child.err.readline():
        assert child.poll() is None
    assert {path.name.partition(".")[0] for path in temporary.iterdir()} >= {"hermes-demo"}
    child.send_signal(signal.SIGINT)
    child.err.read()
    assert child.wait(20) == 130
    assert not list(temporary.iterdir())


def test_a_package_that_is_not_the_known_one_is_refused(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "typing_extensions-4.16.0.tar.gz").write_bytes(b"something else")
    with pytest.raises(PlaceUnavailable, match="another SHA-256"):
        source.verify(sources, {source.PACKAGE: source.PACKAGE_SHA256})


@thorough
@pytest.mark.timeout(180)
def test_a_real_package_comes_from_the_index(cli: Cli) -> None:
    done = cli("demo", "--on", "local", "--json", env=index_settings())
    if b"bundled project" in done.stderr:
        pytest.skip("no package index can be reached here")
    told = json.loads(done.stdout)
    assert told["project"] == "typing_extensions 4.16.0"
    (place,) = told["places"]
    assert place["passed"], place
    assert place["counts"]["tests"] > 500


def index_settings() -> dict[str, str]:
    """How this machine reaches the index."""
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
