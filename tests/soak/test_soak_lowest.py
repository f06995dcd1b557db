"""The oldest dependencies that ``pyproject.toml`` permits: a clean environment with them passes a part of the suite.

``./dev soak lowest`` installs them with uv, which needs the network or a cache.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.installs import ROOT

_EXTRAS = ("docker", "ssh", "otel", "skills", "agent", "chat", "server", "providers", "prices", "cron", "mcp", "top")
_TOOLS = ("pytest-timeout", "pytest-xdist", "hypothesis", "time-machine", "hatchling>=1.33", "editables", "msgpack")
_TESTS = (
    "tests/config", "tests/models", "tests/cli/test_cli_run.py", "tests/cli/test_cli_jobs.py",
    "tests/cli/test_cli_top.py", "tests/packaging/test_public_names.py", "tests/packaging/test_recording.py",
)  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_lowest_versions_pass_the_suite(tmp_path: Path) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    python = tmp_path / "env/bin/python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "env")], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    extras = [word for extra in _EXTRAS for word in ("--extra", extra)]
    lowest = ["--only-binary", ":all:", "--resolution", "lowest-direct", "-r", "pyproject.toml"]
    subprocess.run([*install, *lowest, *extras], check=True, cwd=ROOT)
    subprocess.run([*install, "--only-binary", ":all:", *_TOOLS], check=True, cwd=ROOT)
    subprocess.run([*install, "--no-deps", "--no-build-isolation", "-e", "."], check=True, cwd=ROOT)
    cache = f"cache_dir={tmp_path / 'cache'}"
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-n", "2", "-o", cache, *_TESTS],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
