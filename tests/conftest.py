"""What every test stands on: nothing of the person's own is read; CI skips nothing that is required."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import pytest
from hypothesis import HealthCheck, settings

from tests.rigs import columns, results, shards
from tests.rigs.breadth import BREADTH, IN_FULL, SEED, WHOLE, exercised, is_left_out, is_repeat, one_in, sampled

if TYPE_CHECKING:
    from collections.abc import Generator

pytest.register_assert_rewrite("tests.rigs.agent_task")  # a behaviour, in a module that is no test's own
gc.disable()  # until all tests are collected, none of which is garbage
# Children inherit what was ignored above us, by a nohup or by a shell that put us into the background.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# A loaded machine is slow, and that is no finding.
settings.register_profile("whole", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("plain", settings.get_profile("whole"), max_examples=20)
settings.load_profile("whole" if WHOLE else "plain")
IN_CI = os.environ.get("CI") == "true"
CHECKS_LIMIT_S = 900.0
ROOT = Path(__file__).resolve().parents[1]
_checks_file = ""


class Require(Protocol):
    """Make a test depend on a ``part`` of the machine."""

    def __call__(self, part: str, reason: str = "", *, usable: bool | None = None) -> str: ...


def require_part(part: str, reason: str = "", *, usable: bool | None = None) -> str:
    """Skip the calling test unless ``part`` is here; under CI=true its absence is a failure instead.

    ``part`` is a program on the PATH, whose path is returned, unless ``usable`` says how it is with a part
    that is no program (an engine, a kernel feature). ``reason`` says why it is needed or what is amiss.
    """
    path = shutil.which(part) if usable is None else part
    if path and usable is not False:
        return path
    why = f"needs {part}" + (f": {reason}" if reason else "")
    if IN_CI:
        pytest.fail(f"{why} (required under CI=true; ./dev test --provision installs what is missing)", pytrace=False)
    pytest.skip(f"{why}. Try: ./dev test --provision")


def require_engines() -> None:
    """Skip what starts engines (dockerd, Slurm, Apptainer) where the whole suite was asked for without provisioning."""
    if not WHOLE:
        pytest.skip("starts an engine. Try: ./dev test --provision, or name this test")


def pytest_configure(config: pytest.Config) -> None:
    """Write what the session shows, where ``./dev`` asks for it; sessions that tests start do not."""
    global _checks_file  # noqa: PLW0603  of this session
    _checks_file = os.environ.pop("HERMES_DEV_CHECKS", "")
    results.record(config)
    shards.configure(config)


def pytest_report_header() -> str:
    """Name the seed of the samples."""
    return "" if IN_FULL else f"{BREADTH}: a sample with the seed {SEED}"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the modules of other shards than ``./dev test --shard`` names, and what a sample does not take."""
    if not IN_FULL and collection_path == ROOT / "tests" / "live":
        return True
    if not collection_path.match("test_*.py"):
        return None
    if is_left_out(collection_path):
        return True
    shard = os.environ.get("HERMES_DEV_SHARD")
    if not shard:
        return None
    return shards.shard_of(str(collection_path.relative_to(ROOT))) != shard or None


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Collect no behaviour that repeats another one in this run."""
    return [] if is_repeat(collector, obj) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a conformance behaviour by the part that it exercises."""
    if part := exercised(item):
        item.add_marker(part)


@pytest.hookimpl(trylast=True)  # of what ``-m`` leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the samples, and leave out the repeats."""
    items[:], left = sampled(items)
    if left:
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish() -> None:
    """Look for garbage from here on, and not among the tests."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Spread the tests by shards."""
    if config.getoption("dist") != "loadscope":
        return None
    return shards.ShardScheduling(config, log, lambda module: one_in(module, is_column="/conformance/" in module))


@pytest.fixture(scope="session")
def require() -> Require:
    """``require("rsync", "the peer of sync")`` gives the program's path, or skips; in CI it fails."""
    return require_part


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say which place is under test; under CI=true turn the skip of a ``required`` test into a failure."""
    report = yield
    if column := getattr(getattr(item, "cls", None), "column", ""):
        report.user_properties.append(("column", column))
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("required"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} is required under CI=true and was skipped: {skip_reason(report)}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what a place has shown."""
    column = dict(report.user_properties).get("column")
    if isinstance(column, str) and (report.when == "call" or not report.passed):
        columns.count(column, report.outcome, skip_reason(report) if report.skipped else "")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the counts of a run in full; those of a worker are counted by its controller."""
    if hasattr(session.config, "workerinput"):
        return
    if IN_FULL:
        columns.write()
    if _checks_file and not WHOLE and exitstatus == pytest.ExitCode.OK:
        session.config.add_cleanup(partial(_remove_temporary_folders, session.config))


def _remove_temporary_folders(config: pytest.Config) -> None:
    """Leave nothing outside of the checkout after ``./dev test`` has passed; a failure leaves its folders."""
    factory = cast("pytest.TempPathFactory", config._tmp_path_factory)  # type: ignore[attr-defined]  # private
    folder = factory.getbasetemp()
    shutil.rmtree(folder, ignore_errors=True)
    latest = folder.with_name(f"{folder.name.partition('-')[0]}-current")
    with contextlib.suppress(OSError):
        if not latest.exists():
            latest.unlink()
        folder.parent.rmdir()  # unless another run is in use, or was left by a failure


def skip_reason(report: pytest.TestReport) -> str:
    """The words that a skip gave."""
    where = report.longrepr
    return where[2] if isinstance(where, tuple) else str(where)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Name, just above the closing line, the seed of a failed sample, and which of ``./dev``'s checks failed."""
    yield
    if not IN_FULL and {"failed", "error"} & terminalreporter.stats.keys():
        terminalreporter.write_line(f"the samples of this run are repeated with HERMES_DEV_SEED={SEED}")
    if failed := await_checks():
        terminalreporter.write_line(f"checks that FAILED (output above): {failed}", red=True)


def await_checks() -> str:
    """Wait until the checks that run beside the tests have ended; return the names of those that failed."""
    if not _checks_file:
        return ""
    path, give_up = Path(_checks_file), time.monotonic() + CHECKS_LIMIT_S
    while not path.exists():
        if time.monotonic() > give_up:
            return f"they did not end within {CHECKS_LIMIT_S:g} s"
        time.sleep(0.1)
    return ", ".join(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture(autouse=True, scope="session")
def nothing_of_the_persons_own(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Point every place of a person's settings or records at an empty folder, and drop our variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HERMES_EXEC_")]:
            patch.delenv(name)
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield
