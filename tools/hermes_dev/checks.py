"""The checks that read code without running it: each one line when it passes, its output when it does not."""

from __future__ import annotations

import os
import subprocess
import time
import tomllib
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from typing import TYPE_CHECKING

from hermes_dev.passed import find_affected, read_committed, read_passed, take_snapshot, write_passed
from hermes_dev.place import ROOT, SOURCES, environment, say, venv, venv_python

if TYPE_CHECKING:
    from hermes_dev.passed import Snapshot


_OF_COMMITTED = 8
"""Of the sources of a new checkout, pyright checks one in so many in the first plain run."""


@dataclass(frozen=True)
class Check:
    """A tool to run, as words."""

    name: str
    argv: tuple[str, ...]
    is_kept: bool = True
    """Whether it is kept in ``.cache`` that the sources passed; ruff has a cache of its own."""


@dataclass(frozen=True)
class Outcome:
    """How a check went; ``duration_s`` counts its own time, though two may run at once."""

    name: str
    passed: bool
    output: str
    duration_s: float
    extent: str = ""
    """What was checked, unless it was all."""


def all_checks() -> list[Check]:
    """Every check, the slowest first, since two run at once."""
    python = (venv_python(), "-I")
    scripts = venv() / "bin"
    return [
        Check("pyright", (*python, "-m", "pyright", "--pythonpath", venv_python())),
        Check("mypy", (*python, "-m", "mypy", *(name for name in SOURCES if (ROOT / name).is_dir()))),
        Check("import-linter", (*python, str(scripts / "lint-imports"), "--no-cache")),
        Check("ruff check", (str(scripts / "ruff"), "check", "--quiet", "."), is_kept=False),
        Check("ruff format", (str(scripts / "ruff"), "format", "--check", "--quiet", "."), is_kept=False),
    ]


def run_checks(*, in_full: bool = True) -> list[str]:
    """Run every check, say how each went, and return the names of those that failed.

    If not ``in_full``, what passed is not checked again before a change may affect it, and mypy alone checks the types
    of the tests.
    """
    failed: list[str] = []
    snapshot = take_snapshot()
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for outcome in pool.map(partial(run, snapshot=snapshot, in_full=in_full), all_checks()):
            result = f"{'ok' if outcome.passed else 'FAILED':<7} {outcome.duration_s:5.1f} s"
            say(f"{outcome.name:<14} {result}" + (f" ({outcome.extent})" if outcome.extent else ""))
            if not outcome.passed:
                print(outcome.output.rstrip(), flush=True)
                failed.append(outcome.name)
    return failed


def run(check: Check, snapshot: Snapshot, *, in_full: bool) -> Outcome:
    """Run one check to its end, or as much of it as this run needs; keep what passed."""
    if not check.is_kept:
        return execute(check)
    passed = None if in_full else read_passed(check.name)
    if passed == snapshot:
        return Outcome(check.name, passed=True, output="", duration_s=0.0, extent="unchanged")
    if check.name == "pyright" and not in_full:
        paths = choose_sources(passed, snapshot)
        extent = f"{len(paths)} files"
        no_work = Outcome(check.name, passed=True, output="", duration_s=0.0, extent=extent)
        argv = ("nice", *check.argv, *paths)  # mypy, which may take longer, comes first
        outcome = execute(replace(check, argv=argv), extent) if paths else no_work
    else:
        outcome = execute(check)
    if outcome.passed and take_snapshot() == snapshot:  # else a file may have been read before it was changed, or after
        write_passed(check.name, snapshot)
    return outcome


def choose_sources(passed: Snapshot | None, now: Snapshot) -> list[str]:
    """Return what pyright checks in a plain run: what may be affected, and, at first, a sample of what is committed."""
    every = without_tests(now)
    sample: list[str] = []
    if passed is None and (passed := read_committed(now)):
        seed = os.environ.get("HERMES_DEV_SEED")
        sample = [path for path in every if zlib.crc32(f"{seed} {path}".encode()) % _OF_COMMITTED == 0]
    chosen = find_affected(passed, now).union(sample)
    return [path for path in every if path in chosen]


def without_tests(snapshot: Snapshot) -> list[str]:
    """Return the sources that pyright checks in a plain run: all of its configuration but the tests."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        excluded: list[str] = [*tomllib.load(file)["tool"]["pyright"]["exclude"], "tests/*"]
    return [path for path in sorted(snapshot.sources) if not any(fnmatch(path, pattern) for pattern in excluded)]


def execute(check: Check, extent: str = "") -> Outcome:
    """Run the tool."""
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
    return Outcome(check.name, done.returncode == 0, done.stdout, time.monotonic() - started, extent)
