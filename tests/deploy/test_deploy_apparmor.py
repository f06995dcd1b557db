"""The installer of AppArmor profiles: what it refuses, and what it does in a kernel that has AppArmor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hermes_exec_policies
from tests.conftest import require_part
from tests.rigs import vm

if TYPE_CHECKING:
    from collections.abc import Generator

FOLDER = Path(__file__).parents[2] / "deploy" / "apparmor"
RENDERED = Path(hermes_exec_policies.__file__).parent / "rendered"
PROFILES = {
    "hermes-agent-core", "hermes-exec-hpc", "hermes-exec-shared-workspace", "hermes-exec-skill-run",
    "hermes-exec-skill-script", "hermes-exec-skill-validate", "hermes-exec-workspace",
}  # fmt: skip
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_STEPS = """\
export HERMES_EXEC=/share/rendering
set -e
/share/apparmor/install.sh
echo == again
/share/apparmor/install.sh
echo == loaded
sed -n 's/^\\(hermes-.*\\) (enforce)$/\\1/p' /sys/kernel/security/apparmor/profiles | sort
echo == sandbox
under="aa-exec -p hermes-agent-core -- setpriv --reuid=61234 --regid=61234 --clear-groups --no-new-privs"
$under /usr/bin/bwrap --unshare-all --ro-bind / / --dev /dev /bin/cat /sys/module/apparmor/parameters/enabled
$under /bin/sh -c 'echo x > /proc/sys/kernel/core_pattern' 2>/dev/null || echo refused
echo == removed
/share/apparmor/install.sh --remove
grep -c ^hermes- /sys/kernel/security/apparmor/profiles || ls -a /etc/apparmor.d | grep hermes || echo nothing left
"""


@pytest.fixture
def script() -> Generator[Path]:
    """A copy that any user can read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(FOLDER, Path(folder) / "apparmor")
        yield Path(folder) / "apparmor" / "install.sh"


def run(script: Path, *words: str, user: int | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": _PATH, "HERMES_EXEC": "/bin/true", **variables}
    return subprocess.run(
        [str(script), *words], check=False, capture_output=True, text=True, env=environment, user=user, cwd="/"
    )


@pytest.fixture(autouse=True)
def parser() -> None:
    require_part(
        "apparmor_parser", "it compiles the profiles", usable=shutil.which("apparmor_parser", path=_PATH) is not None
    )


def test_every_profile_compiles(script: Path) -> None:
    program = Path(sys.executable).with_name("hermes-exec")
    done = run(script, "--check", HERMES_EXEC=str(program))
    assert done.returncode == 0, done.stderr
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == PROFILES


def test_without_root_nothing_is_done(script: Path, tmp_path: Path) -> None:
    user = 65534 if os.geteuid() == 0 else None
    done = run(script, user=user, HERMES_APPARMOR_FOLDER=str(tmp_path))
    assert done.returncode == 1
    assert "only root can load profiles; nothing was changed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_word_that_it_does_not_know_is_told_its_usage(script: Path) -> None:
    done = run(script, "--force")
    assert done.returncode == 2
    assert "usage: install.sh" in done.stderr


def test_a_kernel_without_apparmor_is_told_and_nothing_is_written(script: Path, tmp_path: Path) -> None:
    require_part("root", "it is asked for first", usable=os.geteuid() == 0)
    enabled = Path("/sys/module/apparmor/parameters/enabled")
    if enabled.exists() and enabled.read_text() == "Y\n":
        pytest.skip("this kernel has AppArmor")
    done = run(script, HERMES_APPARMOR_FOLDER=str(tmp_path))
    assert done.returncode == 1
    assert "the kernel runs without AppArmor; nothing was changed" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_profiles_are_loaded_once_and_again_let_sandboxes_be_made_and_can_be_removed(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "apparmor")
    for name in (profile.removeprefix("hermes-exec-") for profile in PROFILES if profile != "hermes-agent-core"):
        shutil.copy(RENDERED / name / "apparmor", tmp_path / name)
    rendering = tmp_path / "rendering"
    rendering.write_text('#!/bin/sh\ncat "/share/$3"\n')
    rendering.chmod(0o755)
    (tmp_path / "steps").write_text(_STEPS)
    done = vm.run(["/bin/sh", "/share/steps"], tmp_path)
    assert done.code == 0, done.err + done.out
    first, again, loaded, sandbox, removed = (part.partition("\n")[2] for part in ("\n" + done.out).split("== "))
    assert {line.partition(":")[0] for line in first.splitlines() if "written to" in line} == PROFILES
    assert {line.partition(":")[0] for line in again.splitlines() if "unchanged" in line} == PROFILES
    assert set(loaded.split()) >= PROFILES
    assert sandbox.split() == ["Y", "refused"]
    assert removed.splitlines()[-1] == "nothing left"
