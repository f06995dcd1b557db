"""Run the tests of a skill with pytest; how each ended goes to standard output, what they print to the log."""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest


class Told:
    """Tells how each test ended, a JSON document a line."""

    def __init__(self, own: int) -> None:
        """``own`` is the descriptor to write to."""
        self.own = own

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a test, or of its fixtures where they fail."""
        if report.when == "call" or report.outcome != "passed":
            self.tell(report.nodeid, report.outcome, str(report.longrepr))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell of a file that cannot be read as tests."""
        if report.outcome == "failed":
            self.tell(report.nodeid, "error", str(report.longrepr))

    def tell(self, name: str, outcome: str, why: str) -> None:
        """Write one line."""
        text = why[-1500:] if outcome in {"failed", "error"} else ""
        os.write(self.own, json.dumps({"test": name[:200], "outcome": outcome, "why": text}).encode() + b"\n")


def run(folder: str, testing: str, packages: str) -> None:
    """Run them, with no plugin and no configuration but ours."""
    own = os.dup(1)  # not inherited by what the tests start
    os.dup2(2, 1)
    sys.path[:0] = [*([packages] if packages else []), testing]
    import pytest

    options = ["-q", "-c", os.devnull, "--noconftest", "--rootdir", folder, "--confcutdir", folder]
    sys.exit(pytest.main([*options, "-p", "no:cacheprovider", f"{folder}/tests"], plugins=[Told(own)]))


run(*sys.argv[1:4])
