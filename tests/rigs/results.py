"""What a session of pytest showed, written as JSON for ``./dev``, which runs again what failed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

VARIABLE = "HERMES_DEV_RESULTS"
"""Names the file."""
_LONGEST = 160
_ROOT = Path(__file__).resolve().parents[2]


class Recorder:
    """A plugin of the process that controls the session; with xdist the workers' reports come to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = time.monotonic()
        self._outcomes: dict[str, str] = {}
        self._errors: dict[str, str] = {}
        self._broken = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst of a test's phases, and its first error."""
        if report.failed:
            self._errors.setdefault(report.nodeid, first_line(report))
        elif report.when == "call" or report.skipped:
            self._outcomes[report.nodeid] = report.outcome

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be collected has tests that nobody counts."""
        if report.failed:
            self._broken = f"{report.nodeid or 'a folder'} cannot be collected"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker that died took the state of other tests with it."""
        if error:
            self._broken = f"a worker died: {error}"

    def pytest_sessionfinish(self) -> None:
        """Write it."""
        by_outcome = {
            outcome: [name for name, is_so in self._outcomes.items() if is_so == outcome and name not in self._errors]
            for outcome in ("passed", "skipped")
        }
        found = {
            "failed": self._errors,
            "passed": by_outcome["passed"],
            "skipped": len(by_outcome["skipped"]),
            "seconds": time.monotonic() - self._started,
            "broken": self._broken,
        }
        self._path.write_text(json.dumps(found), encoding="utf-8")


def first_line(report: pytest.TestReport) -> str:
    """The first line of what a report failed with."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(crash, "message", None) or report.longreprtext or "no reason"
    line = " ".join(text.strip().splitlines()[0].split()).replace(f"{_ROOT}/", "")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def record(config: pytest.Config) -> None:
    """Have the session write its results where the variable says; a session that it starts itself does not."""
    path = os.environ.pop(VARIABLE, "")
    if path:
        config.pluginmanager.register(Recorder(Path(path)))
