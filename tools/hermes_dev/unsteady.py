"""Run once more what failed, alone: what passes then is unsteady, and listed in tests/unsteady.md.

`tests/rigs/results.py` writes what a session showed; the decision is made here, from that and from pytest's exit code.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_dev.place import CACHE, ROOT, call, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIST = ROOT / "tests" / "unsteady.md"
MOST = 5
"""So many unsteady tests are let through in one run."""
TESTS_FAILED = 1
"""pytest's exit code for a session that ran to its end with failures; every other one is no matter of a test."""
RESULTS_VARIABLE = "HERMES_DEV_RESULTS"
_HEAD = """\
# Unsteady tests

`./dev test --provision` writes this list: each of these tests failed in the last run, and passed when it ran once more,
alone. Each is a bug to be found. A test that is listed here and is unsteady again fails the run.
"""


@dataclass(frozen=True)
class Results:
    """What a session of pytest left: its failures with the first error of each, and whether it is whole."""

    failed: dict[str, str] = field(default_factory=dict[str, str])
    passed: frozenset[str] = frozenset()
    skipped: int = 0
    seconds: float = 0.0
    broken: str = ""
    """Why the session itself cannot be trusted, or nothing."""


def run_suite(pytest: Callable[..., list[str]], arguments: Sequence[str], *, list_file: Path = LIST) -> int:
    """Run the suite, then what failed; returns the exit code.

    Args:
        pytest: makes the argv of pytest.
        arguments: those of the first session.
        list_file: the list of unsteady tests.
    """
    code, first = run_session(pytest, arguments)
    if first.broken or code not in {0, TESTS_FAILED} or (code and not first.failed):
        if first.broken:
            say(f"the session is not whole: {first.broken}. Nothing is run again")
        return code or 1
    known = read_list(list_file)
    if not first.failed:
        write_list(list_file, {})
        return 0
    if len(first.failed) > MOST:
        say(f"{len(first.failed)} tests failed, more than the {MOST} that are run again")
        return 1
    steady: dict[str, str] = {}
    unsteady: dict[str, str] = {}
    for name, error in first.failed.items():
        say(f"runs again, alone: {name}")
        again, second = run_session(pytest, ["-p", "no:xdist", "-rfEs", name], quiet=True)
        passes = again == 0 and name in second.passed and not second.failed and not second.broken
        (unsteady if passes else steady)[name] = error
    write_list(list_file, unsteady)
    code = report(steady, unsteady, known)
    print_closing_line(first, len(steady), len(unsteady))
    return code


def report(steady: dict[str, str], unsteady: dict[str, str], known: frozenset[str]) -> int:
    """Print how each failure is judged; returns the exit code."""
    for name, error in unsteady.items():
        say(f"unsteady: {name}: {error}")
    twice = sorted(known & unsteady.keys())
    for name in twice:
        say(f"unsteady twice in a row, which fails: {name}")
    for name, error in steady.items():
        say(f"fails alone too: {name}: {error}")
    return int(bool(steady or twice))


def print_closing_line(first: Results, failed: int, unsteady: int) -> None:
    """Print, as pytest would, what the whole run showed: the sessions of single tests have printed theirs since."""
    counts = {
        "failed": failed,
        "passed": len(first.passed) + unsteady,
        "skipped": first.skipped,
        "unsteady": unsteady,
    }
    words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    print(f" {words} in {first.seconds:.2f}s ".center(100, "="), flush=True)


def run_session(
    pytest: Callable[..., list[str]], arguments: Sequence[str], *, quiet: bool = False
) -> tuple[int, Results]:
    """Run one session of pytest; returns its exit code and what it left."""
    path = CACHE / f"results-{os.getpid()}.json"
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.environ[RESULTS_VARIABLE] = str(path)
    try:
        code = call(pytest(*(["-q", "--no-header"] if quiet else []), *arguments))
    finally:
        del os.environ[RESULTS_VARIABLE]
    if not path.exists():
        return code, Results(broken="pytest did not end its session")
    results = read_results(path)
    path.unlink()
    return code, results


def read_results(path: Path) -> Results:
    """Read what the plugin wrote."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found["passed"] = frozenset(found["passed"])
    return Results(**found)


def read_list(path: Path) -> frozenset[str]:
    """The tests that the list names."""
    if not path.exists():
        return frozenset()
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(line.removeprefix("- `").partition("`: ")[0] for line in lines if line.startswith("- `"))


def write_list(path: Path, unsteady: dict[str, str]) -> None:
    """Write the list; a checkout that cannot be written keeps the one that it has."""
    lines = [f"- `{name}`: {error}\n" for name, error in sorted(unsteady.items())]
    text = _HEAD + "\n" + ("".join(lines) or "None.\n")
    try:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        say(f"the list of unsteady tests is not written: {error}")
