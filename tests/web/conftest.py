"""A person's machine, its web view, and a browser, each for the tests of one module."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Cli
from tests.rigs.browser import open_chromium

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    """Debian's Chromium."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cli]:
    """The commands of a person with folders of their own; what still runs at the end is ended."""
    cli = Cli(tmp_path_factory.mktemp("person"))
    yield cli
    for child in cli.started:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    for each in json.loads(cli("jobs", "--json").stdout):
        cli("kill", "--grace", "0", each["job"])
    cli("jobs", "--prune")
