"""What ``doctor`` says about a Daytona that cannot be connected to: the cause, and what mends it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
import time
from asyncio.subprocess import PIPE
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.extras import install_command
from hermes_exec.observe.spending import sum_spent
from hermes_exec_backends.daytona import DaytonaBackend
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Check
    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_server import Daytona


@pytest.fixture(autouse=True)
def account(daytona: Daytona, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is found without a profile, in a folder without anything."""
    monkeypatch.setenv("DAYTONA_API_KEY", daytona.key)
    monkeypatch.setenv("DAYTONA_API_URL", daytona.api_url)
    monkeypatch.chdir(tmp_path)


def said(run: Any) -> dict[str, Check]:
    return {check.name: check for check in run(DaytonaBackend.doctor())}


def test_all_is_well(run: Any, daytona: Daytona) -> None:
    found = said(run)
    assert list(found) == ["sdk", "key", "reachable", "clock", "authorised", "quota"]
    assert {check.status for check in found.values()} == {"ok"}
    assert found["key"].detail == "found in environment variable DAYTONA_API_KEY"
    assert "dtn_" not in str(found)


def test_no_key_names_the_variable(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY")
    found = said(run)["key"]
    assert found.status == "missing"
    assert "DAYTONA_API_KEY is not set" in found.detail
    assert "dashboard/keys" in found.remedy


def test_a_key_in_a_file_that_is_not_read_is_named(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY")
    (tmp_path / ".env").write_text("DAYTONA_API_KEY=x\n")
    assert f"{tmp_path}/.env has one" in said(run)["key"].detail


def test_no_sdk_names_the_extra(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert said(run)["sdk"].remedy == install_command("daytona")


def test_another_version_of_the_sdk_is_a_warning(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def later(_: str) -> str:
        return "2.0.0"

    monkeypatch.setattr(importlib.metadata, "version", later)
    found = said(run)["sdk"]
    assert (found.status, found.detail) == ("warning", "daytona 2.0.0; this is tested with 0.226")


def test_a_service_that_is_not_there(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9/api")
    found = said(run)["reachable"]
    assert found.status == "missing"
    assert "refused" in found.detail
    assert "network" in found.remedy


@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_service_that_refuses(run: Any, daytona: Daytona, status: int) -> None:
    daytona.fail("get_current_api_key", status=status, message="because", times=9)
    found = said(run)["authorised"]
    assert found.status == "missing"
    assert str(status) in found.detail
    assert "because" in found.detail


def test_the_key_is_sent_nowhere_else(run: Any, daytona: Daytona) -> None:
    elsewhere = {"Location": f"{daytona.url}/elsewhere"}
    daytona.fail("get_current_api_key", status=302, message="moved", headers=elsewhere)
    assert said(run)["authorised"].detail == "status 302: moved"
    assert not daytona.complaints  # of a request that it does not know


def test_a_key_that_is_refused(run: Any, daytona: Daytona) -> None:
    daytona.key = "dtn_another"
    found = said(run)["authorised"]
    assert "refused (401)" in found.detail
    assert "dashboard/keys" in found.remedy


def test_a_key_that_soon_ends(run: Any, daytona: Daytona) -> None:
    daytona.key_ends = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    found = said(run)["authorised"]
    assert found.status == "warning"
    assert "ends in 2.0 days" in found.detail


def test_a_clock_that_is_wrong(run: Any, daytona: Daytona) -> None:
    daytona.wall_s = 600.0
    found = said(run)["clock"]
    assert found.status == "warning"
    assert found.detail.endswith("s behind")
    assert found.remedy == "sudo timedatectl set-ntp true"


def test_a_quota_that_is_used_up(run: Any, daytona: Daytona) -> None:
    daytona.quota = 0
    found = said(run)["quota"]
    assert (found.status, found.detail) == ("warning", "0 of 0 CPU in us")
    assert found.remedy == "hermes-exec backends --cost"


@thorough
def test_the_cost_of_what_is_alive_and_of_what_has_ended_is_listed(
    run: Any, daytona: Daytona, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = [sys.executable, "-I", "-m", "hermes_exec", "backends", "--cost", "--json"]

    async def work() -> None:
        async with opened(name="costly", cpu=2):
            shown = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=PIPE)
            out, err = await shown.communicate()
            assert shown.returncode == 0, err
            (alive,) = json.loads(out)["alive"]
            assert alive["target"] == "daytona:@costly"
            assert alive["size"].startswith("2 CPU")
            assert json.loads(out)["ended_today"] == {"cost": 0.0, "count": 0, "unknown": 0}
        spent = sum_spent(0.0, time.time(), ())
        assert (spent.count, spent.unknown) == (1, 0)
        assert spent.cost > 0

    run(work())
