"""The one server of Daytona's of a test run, and profiles of it."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.config.secrets import SecretSource
from hermes_exec_backends.profiles import DaytonaProfile
from tests.conftest import require_part
from tests.rigs import cell_root
from tests.rigs.daytona_server import KEY, Daytona

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.rigs.daytona_sandbox import Sandbox

VARIABLE = "HX_TEST_DAYTONA_KEY"
_running: list[Daytona] = []


def server() -> Daytona:
    """The server, started when it is first asked for; it ends with the process."""
    why = cell_root.why_not()
    require_part("bubblewrap's namespaces", why, usable=not why)
    os.environ[VARIABLE] = KEY
    if not _running:
        _running.append(Daytona().__enter__())
        atexit.register(_running[0].__exit__)
    return _running[0]


def profile(service: Daytona, **options: Any) -> DaytonaProfile:
    """A profile of a sandbox there."""
    chosen: dict[str, Any] = {"image": "python:3.11", **options}
    if {"sandbox", "snapshot", "dockerfile"} & options.keys():
        del chosen["image"]
    return DaytonaProfile(api_url=service.api_url, api_key=SecretSource("env", (VARIABLE,)), **chosen)


def only(daytona: Daytona) -> Sandbox:
    """The one sandbox that there is."""
    (sandbox,) = daytona.sandboxes.values()
    return sandbox


def ran(sandbox: Sandbox) -> str:
    """What the commands have left on the disk."""
    assert sandbox.cell is not None
    return (sandbox.cell.root / "srv/once").read_text()


def checked() -> Generator[Daytona]:
    """The server for some tests, of which nothing may be asked that it does not model."""
    service = server()
    service.recover()
    yield service
    service.recover()
    complaints, service.complaints[:] = list(service.complaints), []
    assert not complaints, "\n".join(complaints)
