"""A sandbox that was left to its jobs: who returns to it for the last of them, and what then becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import hermes_exec
from hermes_exec_backends._shared import labels
from hermes_exec_backends.daytona import cleanup

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from hermes_exec_backends.daytona import DaytonaBackend
    from tests.rigs.daytona_server import Daytona


async def leave_to_a_job(make: Callable[..., DaytonaBackend], **options: Any) -> str:
    """Leave a sandbox to a job; gives the sandbox's name."""
    terminal = await hermes_exec.open(made := make(**options), audit=False)
    await terminal.start(["sleep", "1000"])
    place = made.resource_id
    await terminal.close()
    return place


async def come_back(make: Callable[..., DaytonaBackend], place: str, **options: Any) -> None:
    """Return to a sandbox as ``jobs --prune`` does, find no job of ours there, and leave."""
    made = make(sandbox=place, **options)
    made.options = replace(made.options, reopen=True)
    await made.open()
    await made.close()


def test_a_sandbox_whose_guest_has_a_job_is_left_when_another_guest_has_ended(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "_ENDING_S", 0.0)

    async def work() -> None:
        place = await leave_to_a_job(backend)
        await come_back(backend, place)
        (sandbox,) = daytona.sandboxes.values()
        assert (sandbox.state, sandbox.labels[labels.STATE]) == ("started", "jobs")
        await daytona.also(sandbox.destroy())

    run(work())


def test_a_sandbox_that_its_profile_names_is_not_deleted_with_its_last_job_and_ends_by_its_lease(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        place = await leave_to_a_job(backend, name="mine")
        (sandbox,) = daytona.sandboxes.values()
        assert sandbox.cell is not None
        assert sandbox.auto_stop == 1440
        await daytona.also(sandbox.cell.exec(["pkill", "-TERM", "-o", "-f", "load.*main"]))  # the guest's keeper
        await come_back(backend, place, name="mine")
        assert (sandbox.state, sandbox.auto_stop, sandbox.labels[labels.STATE]) == ("started", 15, "open")
        await daytona.also(sandbox.destroy())

    run(work())
