"""What ``--provision`` asks of apt, on archives that differ as those of Debian and Ubuntu do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
PROVISION = f"import sys; sys.path.insert(0, {str(TOOLS)!r}); from hermes_dev.provision import provision; provision()"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def provisioned(folder: Path, *, known: str) -> tuple[set[str], str]:
    """What is asked for, and what is said, where nothing is on the PATH and the archive knows these packages."""
    (folder / "env").symlink_to(shutil.which("env") or "")
    script(folder / "sudo", 'shift; exec "$@"')
    script(folder / "true", "")
    script(folder / "apt-cache", f'for last; do :; done; case " {known} " in *" $last "*) ;; *) exit 100 ;; esac')
    script(folder / "apt-get", f'echo "$@" >> {folder}/asked')
    argv = [sys.executable, "-I", "-c", PROVISION]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env={"PATH": str(folder)})
    assert done.returncode == 0, done.stderr
    (install,) = [line for line in (folder / "asked").read_text().splitlines() if " install " in line]
    return set(install.split()), done.stderr


def test_dockers_client_is_a_package_where_the_archive_has_it_apart(tmp_path: Path) -> None:
    asked, said = provisioned(tmp_path, known="docker-cli")
    assert "docker-cli" in asked
    assert "  docker-cli: " in said


def test_dockers_client_comes_with_the_engine_where_the_archive_has_it_so(tmp_path: Path) -> None:
    asked, _ = provisioned(tmp_path, known="")
    assert "docker.io" in asked
    assert "docker-cli" not in asked


def test_without_an_archive_of_debian_apptainer_alone_is_left_out(tmp_path: Path) -> None:
    asked, said = provisioned(tmp_path, known="")
    assert "bubblewrap" in asked
    assert "apptainer is left out" in said
