"""``doctor`` says why Modal cannot be used, and what mends it."""

from __future__ import annotations

import email.utils
import importlib.metadata
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.extras import install_command
from hermes_exec_backends.modal import ModalBackend, doctor

if TYPE_CHECKING:
    from hermes_exec.backend import Check
    from tests.rigs.apart import Apart


def by_name(found: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in found}


def test_all_is_well(run: Any, server: Apart) -> None:
    found = by_name(run(ModalBackend.doctor()))
    assert {check.status for check in found.values()} == {"ok"}
    assert found["sdk"].detail == "modal 1.6.4"
    assert found["token"].detail == "from MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
    assert "127.0.0.1" in found["service"].detail
    assert "0 sandboxes" in found["app"].detail


def test_a_missing_sdk_names_the_extra(run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", absent)
    (check,) = run(ModalBackend.doctor())
    assert (check.status, check.remedy) == ("missing", install_command("modal"))


def test_another_release_of_the_sdk_is_a_warning(run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(_: str) -> str:
        return "1.9.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    check = by_name(run(ModalBackend.doctor()))["sdk"]
    assert check.status == "warning"
    assert "1.6" in check.detail


def test_a_missing_token_says_how_to_make_one(run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODAL_TOKEN_ID")
    check = by_name(run(ModalBackend.doctor()))["token"]
    assert check.status == "missing"
    assert "modal token new" in check.remedy


def test_a_token_in_a_file_is_found(run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from hermes_exec_backends.profiles.modal import ModalProfile

    for name, value in (("id", "ak-test"), ("secret", "as-test")):
        (tmp_path / name).write_text(f"{value}\n")
        (tmp_path / name).chmod(0o600)
    monkeypatch.delenv("MODAL_TOKEN_ID")
    profile = ModalProfile.model_validate(
        {"token_id": f"file:{tmp_path}/id", "token_secret": f"file:{tmp_path}/secret"}
    )
    found = by_name(run(doctor.checks(profile)))
    assert found["token"].detail == "from the profile"
    assert found["service"].status == "ok"


@pytest.mark.parametrize(
    ("method", "status", "remedy"),
    [
        ("AppGetOrCreate", "UNAUTHENTICATED", "modal token new"),
        ("AppGetOrCreate", "PERMISSION_DENIED", "a member"),
        ("ClientHello", "RESOURCE_EXHAUSTED", "try again later"),
    ],
)
def test_a_service_that_refuses_says_what_mends_it(
    run: Any, server: Apart, method: str, status: str, remedy: str
) -> None:
    server.call("fail", method, status=status, times=99)
    check = by_name(run(ModalBackend.doctor()))["service"]
    assert check.status == "missing"
    assert remedy in check.remedy


def test_a_service_out_of_reach_is_said_soon(run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_SERVER_URL", "http://127.0.0.1:1")
    check = by_name(run(ModalBackend.doctor()))["service"]
    assert check.status == "missing"
    assert "http://127.0.0.1:1" in check.detail


@pytest.mark.parametrize(("off_s", "status"), [(900.0, "warning"), (5.0, "ok")])
def test_a_clock_that_is_wrong_is_said(
    run: Any, server: Apart, monkeypatch: pytest.MonkeyPatch, off_s: float, status: str
) -> None:
    def date(_: str) -> str:
        return email.utils.formatdate(time.time() - off_s)

    monkeypatch.setattr(doctor, "_date", date)
    assert by_name(run(ModalBackend.doctor()))["clock"].status == status
