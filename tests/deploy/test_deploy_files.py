"""The files of deploy/ that are no program of ours: each is read by what it is for."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import Version

from hermes_exec.config.load import check, load_settings

if TYPE_CHECKING:
    import pytest

    from tests.conftest import Require

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
EXTRAS = ("agent", "bubblewrap", "chat", "memory", "server", "skills", "ssh")


def test_the_service_is_one_that_systemd_takes(require: Require, tmp_path: Path) -> None:
    require("systemd-analyze", "it reads the unit")
    unit = tmp_path / "hermes-exec.service"
    text = (DEPLOY / "hermes-exec.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/hermes/bin/hermes-exec", str(Path(sys.executable).with_name("hermes-exec"))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_of_scheduled_jobs_are_such_that_systemd_takes(require: Require, tmp_path: Path) -> None:
    require("systemd-analyze", "it reads the units")
    names = ("hermes-exec-cron.service", "hermes-exec-cron-tick.service", "hermes-exec-cron-tick.timer")
    for name in names:
        text = (DEPLOY / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(
            text.replace("%h/.local/bin/hermes-exec", str(Path(sys.executable).with_name("hermes-exec")))
        )
    argv = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_is_not_exposed_more_than_sandboxes_need(require: Require) -> None:
    require("systemd-analyze", "it scores the unit")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=40", str(DEPLOY / "hermes-exec.service")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-500:]


def test_the_examples_of_places_are_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("clouds", DEPLOY / "examples/hermes.toml"), ("container", DEPLOY / "hermes.toml")):
        folder = tmp_path / name / "hermes_exec"
        folder.mkdir(parents=True)
        (folder / "hermes.toml").write_bytes(file.read_bytes())
        (folder / "hermes.toml").chmod(0o600)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))
        assert check(load_settings()) == []


def test_the_image_has_a_pinned_version_of_all_that_its_extras_need() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    text = (DEPLOY / "requirements.txt").read_text(encoding="utf-8")
    pinned = {match[1]: Version(match[2]) for match in re.finditer(r"^([a-z0-9.-]+)==([^ ;\\]+)", text, re.MULTILINE)}
    wanted = [Requirement(line) for line in project["dependencies"]]
    wanted += [Requirement(line) for name in EXTRAS for line in project["optional-dependencies"].get(name, [])]
    lacking = [str(each) for each in wanted if pinned.get(each.name) is None or pinned[each.name] not in each.specifier]
    assert lacking == [], "renew it: ./dev lock"


def test_what_is_built_into_the_image_is_all_that_is_sent_to_the_engine() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"}
    copied: set[str] = set()
    for line in (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY "):
            copied.update(line.split()[1:-1])
    assert kept == copied
