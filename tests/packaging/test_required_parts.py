"""A missing part skips on a person's machine and fails in CI; the suite's own rules, run as a suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

TESTS = Path(__file__).parents[1]
PROVISION = TESTS.parent / "tools" / "hermes_dev" / "provision.py"
OF_EVERY_DEBIAN = {"apt-get", "setpriv", "sh", "tar", "unshare"}
IN_PACKAGES_OF_OTHERS = {"top", "npm"}  # procps, and the wheel of Node.js
OF_APPTAINER = {"apptainer", "mksquashfs"}  # which provisioning installs in a way of its own

SUITE = """\
import os
import pytest

def test_has_its_part(require):
    assert os.access(require("sh"), os.X_OK)

def test_lacks_a_program(require):
    require("no-such-program", "it is the peer")

def test_lacks_an_engine(require):
    require("the engine", "it does not answer", usable=False)

@pytest.mark.required
@pytest.mark.skip(reason="cannot run here")
def test_required():
    pass

@pytest.mark.skip(reason="cannot run here")
def test_optional():
    pass

@pytest.mark.required
@pytest.mark.xfail(reason="a known limit")
def test_known_limit():
    assert False
"""


def run_suite(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, folder)
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    required\n")
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    # With a basetemp of its own, or it first tidies up what other runs left, which can take long.
    argv = [sys.executable, "-I", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:simcord", "-rs"]
    argv.append(f"--basetemp={folder}/tmp")
    argv.append(str(folder))
    return subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder, env=kept | environment)


def test_every_program_that_tests_require_is_one_that_provisioning_installs() -> None:
    calls = re.findall(r'\brequire(?:_part)?\("([\w.-]+)"(?:, "[^"]*")?\)', "".join(map(_text, TESTS.rglob("*.py"))))
    installed = re.findall(r'Part\("[^"]+", "([^"]+)"', _text(PROVISION))
    assert {"bwrap", "vim"} <= {*calls}
    assert {*calls} - {*installed} - OF_EVERY_DEBIAN - IN_PACKAGES_OF_OTHERS - OF_APPTAINER == {"no-such-program"}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_missing_parts_are_skipped_with_their_reasons_on_a_persons_machine(tmp_path: Path) -> None:
    done = run_suite(tmp_path)
    assert "1 passed, 4 skipped, 1 xfailed" in done.stdout
    assert "needs no-such-program: it is the peer. Try: ./dev test --provision" in done.stdout
    assert "needs the engine: it does not answer" in done.stdout
    assert done.returncode == 0


def test_missing_required_parts_fail_in_ci(tmp_path: Path) -> None:
    done = run_suite(tmp_path, CI="true")
    assert "2 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in done.stdout
    assert "test_required is required under CI=true and was skipped: Skipped: cannot run here" in done.stdout
    assert done.returncode == 1


def test_a_failed_check_is_told_just_above_the_closing_line(tmp_path: Path) -> None:
    checks = tmp_path / "checks.json"
    ending = threading.Timer(3, checks.write_text, ['["mypy", "pyright"]'])
    ending.start()
    done = run_suite(tmp_path, HERMES_DEV_CHECKS=str(checks))
    ending.join()
    *_, told, closing = done.stdout.splitlines()
    assert told.endswith(": mypy, pyright")
    assert "1 passed" in closing


@pytest.mark.parametrize("name", ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"])
def test_no_test_sees_the_persons_own_folders(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert Path(os.environ[name]).is_relative_to(tmp_path_factory.getbasetemp())


def test_nothing_is_imported_from_tests_that_a_plain_run_leaves_out() -> None:
    texts = {path.stem: _text(path) for path in TESTS.rglob("*.py")}
    left_out = {name for name, text in texts.items() if re.search(r"^leave_out\(", text, re.MULTILINE)}
    assert "test_daytona_loss" in left_out
    imported = re.findall(r"^\s*from tests\.[\w.]*?(test_\w+) import", "\n".join(texts.values()), re.MULTILINE)
    assert not left_out & {*imported}
