"""``update`` installs a newer wheel with the installer that was used; one that does not start is replaced."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.cli.update import parse_version, select_changes
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
CHANGES = "# Changelog\n\n## 0.{0}.0 (2030-01-01)\n- A line of 0.{0}.\n\n## 0.0.1\n- The first.\n"


def rewrite(wheel: Path, version: str, files: Mapping[str, str]) -> Path:
    """Write a copy of a wheel with another version and other files."""
    made = wheel.with_name(re.sub(r"-\d+\.\d+\.\d+-", f"-{version}-", wheel.name))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w") as new:
        names: list[str] = []
        for name in old.namelist():
            renamed = re.sub(r"^hermes_exec-[\d.]+(?=\.dist-info)", f"hermes_exec-{version}", name)
            data = old.read(name)
            if name.endswith("/METADATA"):
                data = re.sub(rb"(?m)^Version: .*$", f"Version: {version}".encode(), data)
                data = re.sub(rb"(?m)^Requires-Dist: .*\n", b"", data)
            if name in files:
                data = files[name].encode()
            if not name.endswith("/RECORD"):
                new.writestr(renamed, data)
            names.append(renamed)
        (record,) = (name for name in names if name.endswith("/RECORD"))
        new.writestr(record, "".join(f"{name},,\n" for name in names))
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, as the version 0.0.1."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return rewrite(wheel, "0.0.1", {})


def install_with_uv(folder: Path, wheel: Path, env: dict[str, str]) -> Path:
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder / "env")], check=True)
    python = folder / "env/bin/python"
    subprocess.run([uv, "pip", "install", "-q", "--no-deps", "--python", str(python), str(wheel)], check=True)
    env["PATH"] = f"{Path(uv).parent}:{env['PATH']}"
    return python


def install_with_pip(folder: Path, wheel: Path, env: dict[str, str]) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    python = folder / "env/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True, env=env)
    return python


def install_with_pipx(folder: Path, wheel: Path, env: dict[str, str]) -> Path:
    pipx = Path(sys.executable).with_name("pipx")
    env["PATH"] = f"{pipx.parent}:{env['PATH']}"
    env["PIPX_HOME"], env["PIPX_BIN_DIR"] = str(folder / "pipx"), str(folder / "bin")
    argv = [str(pipx), "install", "--backend", "uv", "--python", sys.executable, "hermes-exec"]
    subprocess.run(argv, check=True, env=env, capture_output=True)
    return folder / "pipx/venvs/hermes-exec/bin/python"


class Installation:
    """An environment with the version 0.0.1 of this project, and a folder of wheels as its index."""

    def __init__(self, folder: Path, built: Path, install: Callable[[Path, Path, dict[str, str]], Path]) -> None:
        (wheels := folder / "wheels").mkdir()
        self._folder = folder
        self._first = Path(shutil.copy(built, wheels))
        self._env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels),
            "UV_CACHE_DIR": str(folder / "cache"), "UV_OFFLINE": "1", "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }  # fmt: skip
        self._python = install(folder, self._first, self._env)
        (site,) = self._python.parents[1].glob("lib/*/site-packages")
        (site / "others.pth").write_text(sysconfig.get_path("purelib"))  # the libraries of the developers' environment
        for facts in site.glob("hermes_exec-*/direct_url.json"):
            facts.unlink()  # as if it came from an index

    def publish(self, version: str, files: Mapping[str, str]) -> None:
        """Add a wheel to the index."""
        rewrite(self._first, version, files)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the installed version."""
        argv = [str(self._python), "-m", "hermes_exec", *words]
        return subprocess.run(argv, check=False, capture_output=True, text=True, cwd=self._folder, env=self._env)


@thorough
@pytest.mark.timeout(300)
def test_a_check_shows_what_is_new_and_changes_nothing(tmp_path: Path, built: Path) -> None:
    here = Installation(tmp_path, built, install_with_uv)
    done = here.run("update", "--check")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    here.publish("0.2.0", {"hermes_exec/CHANGELOG.md": CHANGES.format(2)})
    done = here.run("update", "--check", "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["newest"] == "0.2.0"
    assert json.loads(done.stdout)["changes"].splitlines() == ["## 0.2.0 (2030-01-01)", "- A line of 0.2."]
    assert here.run("update").returncode == 2  # it asks, and there is no terminal
    assert here.run("version").stdout == "hermes-exec 0.0.1\n"


@thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("install", [install_with_uv, install_with_pip, install_with_pipx])
def test_a_newer_wheel_is_installed_and_a_broken_one_is_not(
    tmp_path: Path, built: Path, install: Callable[[Path, Path, dict[str, str]], Path]
) -> None:
    here = Installation(tmp_path, built, install)
    here.publish("0.2.0", {})
    done = here.run("update", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["installer"] == install.__name__.removeprefix("install_with_")
    here.publish("0.3.0", {"hermes_exec/cli/__init__.py": "raise SystemExit('broken')\n"})
    done = here.run("update", "--yes")
    assert done.returncode == 125
    assert "0.3.0 does not start: broken; the version from before is installed" in done.stderr
    assert here.run("version").stdout == "hermes-exec 0.2.0\n"


def test_a_checkout_is_not_updated() -> None:
    argv = [sys.executable, "-I", "-m", "hermes_exec", "update", "--check"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "this is a checkout" in done.stderr


def test_the_changes_are_those_of_newer_versions() -> None:
    text = "# C\n\n## 0.10.0 (unreleased)\nten\n\n## 0.9.1\nnine\x1b[2J\n\n## 0.1.0\none\n"
    assert select_changes(text, "0.9.0") == "## 0.10.0 (unreleased)\nten\n\n## 0.9.1\nnine?[2J"
    assert select_changes(text, "0.10.0") == ""
    assert parse_version("1.2.3rc1") > parse_version("1.2")
