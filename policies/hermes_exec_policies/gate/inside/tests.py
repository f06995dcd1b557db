"""Run the tests of a skill with pytest; outcomes go to standard output, what the tests print goes to the log."""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest


class Told:
    """A pytest plugin that reports the outcome of each test, one JSON document a line."""

    def __init__(self, own: int) -> None:
        """Write reports to the descriptor ``own``."""
        self.own = own

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report a test, or its fixtures if they fail."""
        if report.when == "call" or report.outcome != "passed":
            self.tell(report.nodeid, report.outcome, str(report.longrepr))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a file that cannot be collected."""
        if report.outcome == "failed":
            self.tell(report.nodeid, "error", str(report.longrepr))

    def tell(self, name: str, outcome: str, why: str) -> None:
        """Write one line."""
        text = why[-1500:] if outcome in {"failed", "error"} else ""
        os.write(self.own, json.dumps({"test": name[:200], "outcome": outcome, "why": text}).encode() + b"\n")


def run(folder: str, testing: str, packages: str) -> None:
    """Run the tests without configuration and with no plugin but ours."""
    own = os.dup(1)  # not inherited by the tests' child processes
    os.dup2(2, 1)
    sys.path[:0] = [*([packages] if packages else []), testing]
    import pytest

    options = ["-q", "-c", os.devnull, "--noconftest", "--rootdir", folder, "--confcutdir", folder]
    sys.exit(pytest.main([*options, "-p", "no:cacheprovider", f"{folder}/tests"], plugins=[Told(own)]))


run(*sys.argv[1:4])
