"""``top --json``: everything that the screen shows, once."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from hermes_exec.cli.console import note
from hermes_exec.cli.find_jobs import guests_with_jobs, record_ends
from hermes_exec.cli.jobs import job_to_json, pty_to_json
from hermes_exec.cli.output import show_json
from hermes_exec.cli.top.view import View, load_views
from hermes_exec.cli.top.watch import list_pooled, read_billed
from hermes_exec.errors import HermesError


async def print_snapshot(on: str | None) -> int:
    """Read everything at once and print one JSON object."""
    try:
        async with asyncio.TaskGroup() as tasks:
            billing = tasks.create_task(read_billed())
            reading = tasks.create_task(_read_jobs(on))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    billed, ended_today = billing.result()
    jobs, shells = reading.result()
    pooled = [
        {"kind": "pool", **{name: value for name, value in asdict(entry).items() if name not in {"guest", "client"}}}
        for entry in await asyncio.to_thread(list_pooled)
    ]
    targets = sorted({each["target"] for each in [*jobs, *shells, *pooled]})
    document: dict[str, Any] = {
        "targets": targets,
        "billed": billed,
        "ended_today": ended_today,
        "terminals": shells + pooled,
        "jobs": jobs,
    }
    for view in load_views():
        document[view.title.lower()] = await asyncio.to_thread(_read, view)
    show_json(document)
    return 0


async def _read_jobs(on: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    async with guests_with_jobs(on) as guests:
        record_ends(guests)
        jobs = [job_to_json(guest.record.target, job) for guest in guests for job in guest.jobs]
        shells = [pty_to_json(guest.record.target, shell) for guest in guests for shell in guest.ptys]
    return jobs, shells


def _read(view: View) -> list[dict[str, str]]:
    heads = [head.lower() for head in view.heads]
    try:
        return [dict(zip(heads, row.cells, strict=True)) for row in view.read()]
    except HermesError as error:
        note(f"{view.title}: {error}")
        return []
