"""The checks that read code without running it: each one line when it passes, its output when it does not."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hermes_dev.place import ROOT, SOURCES, environment, say, venv, venv_python


@dataclass(frozen=True)
class Check:
    """A tool to run, as words."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a check went; ``duration_s`` counts its own time, though two may run at once."""

    name: str
    passed: bool
    output: str
    duration_s: float


def all_checks(*, in_full: bool) -> list[Check]:
    """Every check, the slowest first, since two run at once. If not ``in_full``, mypy alone checks the tests' types."""
    python = (venv_python(), "-I")
    present = [name for name in SOURCES if (ROOT / name).is_dir()]
    other = [] if in_full else [name for name in present if name != "tests"]
    scripts = venv() / "bin"
    return [
        Check("pyright", (*python, "-m", "pyright", "--pythonpath", venv_python(), *other)),
        Check("mypy", (*python, "-m", "mypy", *present)),
        Check("import-linter", (*python, str(scripts / "lint-imports"), "--no-cache")),
        Check("ruff check", (str(scripts / "ruff"), "check", "--quiet", ".")),
        Check("ruff format", (str(scripts / "ruff"), "format", "--check", "--quiet", ".")),
    ]


def run_checks(*, in_full: bool = True) -> list[str]:
    """Run every check, say how each went, and return the names of those that failed."""
    failed: list[str] = []
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for outcome in pool.map(run, all_checks(in_full=in_full)):
            say(f"{outcome.name:<14} {'ok' if outcome.passed else 'FAILED':<7} {outcome.duration_s:5.1f} s")
            if not outcome.passed:
                print(outcome.output.rstrip(), flush=True)
                failed.append(outcome.name)
    return failed


def run(check: Check) -> Outcome:
    """Run one check to its end."""
    started = time.monotonic()
    done = subprocess.run(
        check.argv,
        check=False,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Outcome(check.name, done.returncode == 0, done.stdout, time.monotonic() - started)
