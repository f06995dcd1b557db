"""A plugin of pytest: the fixture ``terminal`` is an open terminal of the target that ``--hermes-on`` names.

pytest imports this module in every session, so it imports nothing of hermes_exec by itself. docs/howto-pytest.md has
examples.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.recording import RecordedTerminal
    from hermes_exec.sync import Terminal

DEFAULT_TARGET = "local"
_LONGEST_NAME = 120
SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the line ``hermes_on`` of pytest's configuration."""
    group = parser.getgroup("hermes-exec", "terminals of targets (hermes-exec)")
    group.addoption(
        "--hermes-on",
        action="append",
        metavar="TARGET",
        help="Open TARGET for the fixture `terminal`: a profile, or a one-line target such as docker:python:3.11. "
        "With several, tests run in each. The default is the setting hermes_on, or else this machine.",
    )
    group.addoption(
        "--hermes-scope",
        choices=SCOPES,
        default="function",
        help="Share the fixture `terminal` within a class, module, package or session; by default each test has its "
        "own.",
    )
    group.addoption(
        "--hermes-record",
        metavar="DIR",
        help="Record what tests do with the fixture `terminal`, in a file of DIR for each.",
    )
    group.addoption(
        "--hermes-replay",
        metavar="DIR",
        help="Answer the fixture `terminal` from the files of --hermes-record, without the target.",
    )
    parser.addini("hermes_on", "Targets of the fixture `terminal`, unless --hermes-on names some.", type="args")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that exclude each other, and a folder for recordings that cannot be created."""
    record = config.getoption("--hermes-record")
    if not record:
        return
    if config.getoption("--hermes-replay"):
        raise pytest.UsageError("--hermes-record and --hermes-replay exclude each other")
    try:
        Path(record).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"--hermes-record {record}: {error.strerror}") from None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the targets, if there are others than this machine."""
    targets = list_targets(config)
    return None if targets == [DEFAULT_TARGET] else f"hermes-exec: {', '.join(targets)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that have a terminal in each of the targets."""
    if "hermes_target" in metafunc.fixturenames:
        metafunc.parametrize("hermes_target", list_targets(metafunc.config), indirect=True, scope="session")


def list_targets(config: pytest.Config) -> list[str]:
    """Return the targets of this session, each once."""
    given: list[str] = config.getoption("--hermes-on") or config.getini("hermes_on") or [DEFAULT_TARGET]
    return list(dict.fromkeys(given))


def _scope(fixture_name: str, config: pytest.Config) -> Any:  # noqa: ARG001  the signature of pytest
    return config.getoption("--hermes-scope")


@pytest.fixture(scope="session")
def hermes_target(request: pytest.FixtureRequest) -> str:
    """The target of the fixture ``terminal``."""
    return str(request.param)


@pytest.fixture(scope=_scope)
def terminal(request: pytest.FixtureRequest, hermes_target: str) -> Generator[Terminal | RecordedTerminal]:
    """An open, blocking terminal of the target; it is closed at the end, with all that it started."""
    import hermes_exec.sync
    from hermes_exec.errors import HermesError

    record, replay = request.config.getoption("--hermes-record"), request.config.getoption("--hermes-replay")
    several = len(list_targets(request.config)) > 1
    file = _file_of(request.node, record or replay or "", hermes_target, several=several)
    try:
        if replay:
            from hermes_exec.recording import RecordedTerminal, Recording

            yield RecordedTerminal(Recording.load(file))
            return
        opened = hermes_exec.sync.open(hermes_target)
    except HermesError as error:
        what = f"--hermes-{'replay' if replay else 'on'} {replay or hermes_target}: {error}"
        raise pytest.fail.Exception(what, pytrace=False) from None  # pytest would print the error once more
    with opened:
        if not record:
            yield opened
            return
        from hermes_exec.recording import record as record_calls

        with record_calls(opened, file) as recorded:
            yield recorded


def _file_of(node: pytest.Item | pytest.Collector, folder: str, target: str, *, several: bool) -> Path:
    """Return the file of the recording of a test, or of tests that share a terminal.

    It names the target only in a session with several targets, so that it is replayed without the target's name.
    """
    name = (node.nodeid or "session").replace(f"[{target}]", "", 1).replace(f"[{target}-", "[", 1)
    name = re.sub(r"[^\w.=-]+", "-", f"{name}-{target}" if several else name).strip("-")
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return Path(folder) / f"{name}.json"
