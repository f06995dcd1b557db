"""Where no sandbox can be made: what is said, and what mends it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.bubblewrap.backend import check_sandbox, run_checks
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from hermes_exec_backends.sandbox.host import APPARMOR, CLONE, COUNT, explain_refusal
from tests.rigs.boxes import Box
from tests.rigs.docker_engine import BUBBLEWRAP, DEBIAN, engine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Require

# What bwrap 0.8 and 0.9 say where the kernel, AppArmor or an engine's filter forbid it.
_NO_NAMESPACE = "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged"
_NO_MAP = "bwrap: setting up uid map: Permission denied"
_NO_PROC = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
_NO_SETTING = "bwrap: cannot open /proc/sys/user/max_user_namespaces: Read-only file system"


@pytest.mark.parametrize(
    ("said", "sysctls", "reason", "remedy"),
    [
        (_NO_NAMESPACE, {COUNT: "0"}, "no user namespaces", "sysctl -w user.max_user_namespaces=15000"),
        (_NO_NAMESPACE, {CLONE: "0", COUNT: "100"}, "root alone", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (_NO_MAP, {APPARMOR: "1", COUNT: "100"}, "AppArmor", "apparmor_parser -r /etc/apparmor.d/bwrap"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", {APPARMOR: "1"}, "AppArmor", "userns,"),
        (_NO_NAMESPACE, {APPARMOR: "0", COUNT: "100"}, "not allowed", "seccomp=unconfined"),
        (_NO_PROC, {COUNT: "100"}, "not allowed", "systempaths=unconfined"),
        (_NO_SETTING, {COUNT: "100"}, "forbid further", "ProtectKernelTunables"),
        ("bwrap: Unknown option --disable-userns", {}, "too old", "0.8.0 or later"),
        ("bwrap: something new", {}, "something new", ""),
    ],
)
def test_each_restriction_is_named_with_what_mends_it(
    said: str, sysctls: dict[str, str], reason: str, remedy: str
) -> None:
    why = explain_refusal(said, sysctls)
    assert reason in why.reason
    assert remedy in why.remedy


def test_the_profile_that_mends_it_is_one(require: Require, tmp_path: Path) -> None:
    """The command is run up to the point where it would change the machine."""
    parser = require("apparmor_parser", "reads the profile")
    remedy = explain_refusal(_NO_MAP, {APPARMOR: "1"}, program="/usr/bin/bwrap").remedy
    text = subprocess.run(["sh", "-c", remedy.partition("|")[0]], check=True, capture_output=True, text=True).stdout
    assert "profile bwrap /usr/bin/bwrap flags=(unconfined) {" in text
    file = tmp_path / "bwrap"
    file.write_text("\n".join(line for line in text.splitlines() if "userns" not in line and "abi" not in line))
    checked = subprocess.run([parser, "-Q", "-K", "-S", str(file)], check=False, capture_output=True)
    assert checked.returncode == 0, checked.stderr


def test_doctor_finds_what_works_here(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    assert [(check.name, check.status) for check in asyncio.run(run_checks())] == [("program", "ok"), ("sandbox", "ok")]


def test_doctor_says_that_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = asyncio.run(run_checks())
    assert (check.status, check.remedy) == ("missing", "install bubblewrap: apt-get install bubblewrap")


def test_doctor_refuses_a_version_that_cannot_forbid_namespaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho bubblewrap 0.6.1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = asyncio.run(run_checks())
    assert check.status == "missing"
    assert "0.6.1" in check.detail
    assert "0.8.0 or later" in check.remedy


def test_doctor_reads_the_settings_of_the_kernel(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\necho "{_NO_MAP}" >&2; exit 1\n')
    program.chmod(0o755)
    (tmp_path / "kernel").mkdir()
    (tmp_path / APPARMOR).write_text("1\n")
    check = asyncio.run(check_sandbox(str(program), tmp_path))
    assert check.status == "missing"
    assert f"profile bwrap {program} flags=(unconfined)" in check.remedy


def test_opening_without_bwrap_says_so_and_names_the_place() -> None:
    backend = BubblewrapBackend(BubblewrapProfile(program="no-such-bwrap"), Box("outer"))
    with pytest.raises(PlaceUnavailable, match=r"no no-such-bwrap at box:outer") as caught:
        asyncio.run(backend.open())
    assert caught.value.place == "bubblewrap+box:outer"


def test_opening_where_it_is_forbidden_says_why(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\necho "{_NO_PROC}" >&2; exit 1\n')
    program.chmod(0o755)
    backend = BubblewrapBackend(BubblewrapProfile(program=str(program)))
    with pytest.raises(PlaceUnavailable, match="mount proc") as caught:
        asyncio.run(backend.open())
    assert "systempaths=unconfined" in caught.value.remedy


@pytest.mark.timeout(240)  # an engine may have to be started, and an image made, first
@pytest.mark.parametrize(
    ("image", "options", "why"),
    [
        (DEBIAN, {}, "no bwrap at docker:"),
        (BUBBLEWRAP, {}, "new namespace"),
        (BUBBLEWRAP, {"security_opt": ["seccomp=unconfined"]}, "mount proc"),
    ],
)
def test_a_container_that_was_not_made_for_it_is_told_what_it_needs(
    image: str, options: dict[str, Any], why: str
) -> None:
    container = DockerBackend(engine().profile(image, **options))
    backend = BubblewrapBackend.nest(BubblewrapProfile(), container)
    with pytest.raises(PlaceUnavailable, match=why) as caught:
        asyncio.run(backend.open())
    assert "bubblewrap" in caught.value.remedy or "systempaths=unconfined" in caught.value.remedy


def test_the_first_look_is_remembered_for_this_machine(require: Require, tmp_path: Path) -> None:
    bwrap = require("bwrap", "makes the sandbox")
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\necho x >>{tmp_path}/log\nexec {shutil.which(bwrap)} "$@"\n')
    program.chmod(0o755)

    async def open_and_close() -> None:
        backend = BubblewrapBackend(BubblewrapProfile(program=str(program)))
        await backend.open()
        await backend.close()

    for _ in range(3):
        asyncio.run(open_and_close())
    assert (tmp_path / "log").read_text() == "x\n"
