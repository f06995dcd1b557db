"""``./dev test --lowest``: the oldest dependencies that ``pyproject.toml`` permits, with a part of the suite."""

from __future__ import annotations

import shutil

from hermes_dev.place import ROOT, DevError, call, say
from hermes_dev.setup import find_uv

FOLDER = ROOT / ".venv-lowest"
EXTRAS = ("docker", "ssh", "otel", "skills", "agent", "chat", "server", "cron", "top")
"""Extras whose packages permit the oldest pydantic; `mcp`, `prices` and `providers` need a newer one themselves."""
TOOLS = (
    "pytest>=9,<10", "pytest-timeout", "pytest-xdist", "hypothesis", "time-machine", "hatchling>=1.33", "editables",
)  # fmt: skip
TESTS = (
    "tests/config", "tests/models/test_scripted.py", "tests/models/test_endpoint.py",
    "tests/models/test_model_settings.py", "tests/cli/test_cli_tables.py",
    "tests/packaging/test_public_names.py",
    "tests/packaging/test_recording.py",
)  # fmt: skip
"""What a change of pydantic, rich and typer breaks first."""


def run(arguments: list[str]) -> int:
    """Make a new environment, and run these tests, or a part of the suite.

    Raises:
        DevError: the oldest versions cannot be installed together.
    """
    uv = find_uv()
    python = str(FOLDER / "bin" / "python")
    shutil.rmtree(FOLDER, ignore_errors=True)
    install = [uv, "pip", "install", "--quiet", "--python", python]
    extras = [f"--extra={name}" for name in EXTRAS]
    for argv in (
        [uv, "venv", "--quiet", "--python", "3.11", str(FOLDER)],
        [*install, "--resolution", "lowest-direct", "-r", "pyproject.toml", *extras],
        [*install, *TOOLS],
        [*install, "--no-deps", "--no-build-isolation", "-e", "."],
    ):
        if call(argv):
            raise DevError(f"the oldest versions cannot be installed: {' '.join(argv[:3])}")
    say(f"{FOLDER.name} has the oldest versions")
    cache = f"cache_dir={FOLDER / '.pytest_cache'}"
    return call([python, "-I", "-m", "pytest", "-q", "-n", "0", "-o", cache, *(arguments or TESTS)])
