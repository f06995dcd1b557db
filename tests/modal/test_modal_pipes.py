"""A later SDK may hide its own objects otherwise: then its public ones serve the streams, and nothing else changes."""

from __future__ import annotations

import asyncio
import hashlib
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import OutcomeUnknown
from hermes_exec_backends.modal.account import sdk
from tests.modal.conftest import ran

if TYPE_CHECKING:
    from tests.modal.conftest import Opened
    from tests.rigs.apart import Apart


@pytest.fixture(autouse=True, params=["moved", "renamed", "without a loop"])
def _otherwise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the SDK itself uses stays; only who looks for it now finds something else."""
    sdk()
    name = "modal._utils.async_utils.synchronizer"
    if request.param == "moved":
        monkeypatch.delattr(name)
    elif request.param == "renamed":
        monkeypatch.setattr(name, SimpleNamespace())
    else:
        monkeypatch.setattr(name, SimpleNamespace(_translate_in=_as_it_is, _get_loop=_no_loop))


def _as_it_is(process: Any) -> Any:
    return process


def _no_loop(*, start: bool) -> None:
    assert not start


def test_commands_streams_and_ends_are_as_ever(run: Any, opened: Opened) -> None:
    data = os.urandom(9_000_000)  # large enough to go beside the link

    async def work() -> None:
        async with opened() as terminal:
            result = await terminal.run(["sh", "-c", "cat >&2; echo out; exit 7"], stdin=b"in")
            assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"in", 7)
            summed = await terminal.run(["sha256sum"], stdin=data)
            assert summed.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
            await terminal.write("/srv/data", data)
            assert await terminal.read("/srv/data") == data

    run(work())


def test_a_sandbox_that_ends_leaves_the_outcome_unknown(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            running = asyncio.ensure_future(terminal.run("echo x >> /tmp/hidden; sleep 1000"))
            while (await terminal.run(["test", "-s", "/tmp/hidden"])).exit_code != 0:
                await asyncio.sleep(0.01)
            before.append(ran(server, "hidden"))
            server.call("finish", server.call("alive")[0]["id"], "TERMINATED", 137)
            with pytest.raises(OutcomeUnknown):
                await running

    before: list[int] = []
    run(work())
    assert [ran(server, "hidden")] == before
