"""``demo``: a real job in every place that can be used here, from nothing to a table."""

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.demo.job import Outcome
from hermes_exec.cli.demo.source import Project
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table

FREE = {
    "local": "local",
    "docker": "docker:python:3.11-slim",
    "singularity": "singularity:docker://python:3.11-slim",
}
"""Kinds of place that need neither an account nor a host: what is opened when they are usable."""
REQUIRED = "local"
"""The kind of place that has to open; the others are skipped when they do not."""
_LONGEST = 120
"""Characters of the line that says why a place is skipped; --json has all of it."""


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(demo)


def demo(
    on: Annotated[
        list[str] | None,
        typer.Option("--on", "-o", metavar="TARGET", help="Only there; may be given more than once."),
    ] = None,
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Use the bundled project, as without a network.")] = False,
    reports: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the test reports in this folder.")] = None,
    json: Json = False,
) -> int:
    """Do a real job in every place that can be used here, and print a table of what came of it.

    A source distribution from the package index is uploaded to a fresh folder, installed in a virtual
    environment there, tested with its own suite, and its report is brought back. Without a network it is
    a small bundled project. Nothing stays behind, also after Ctrl-C. Places that --on does not name are
    skipped when they do not open. The exit code is 1 if the job failed in a place, or a place of --on did not open.
    """
    return interruptible.run(_demo(on or [], offline=offline, reports=reports, json=json))


async def _demo(on: list[str], *, offline: bool, reports: Path | None, json: bool) -> int:
    from hermes_exec.cli.demo.display import displayed
    from hermes_exec.cli.demo.job import do_job

    targets, unusable = ({target: target for target in on}, []) if on else await _usable()
    with tempfile.TemporaryDirectory(prefix="hermes-exec-demo-") as folder:
        project = await _project(Path(folder), offline=offline)
        kept = reports or Path(folder)
        await asyncio.to_thread(kept.mkdir, parents=True, exist_ok=True)
        outcomes: list[Outcome] = []
        for name, target in targets.items():
            with displayed() as display:
                outcome = await do_job(target, project, kept, display)
                display.over()
            if on or outcome.opened or name == REQUIRED:
                outcomes.append(outcome)
            else:
                unusable.append((name, outcome.trouble))
    if json:
        facts = [{**asdict(outcome), "passed": outcome.passed} for outcome in outcomes]
        show_json({"project": project.title, "places": facts, "unusable": dict(unusable)})
    else:
        _show(project, outcomes, unusable)
    return 0 if outcomes and all(outcome.passed for outcome in outcomes) else CHECK_FAILED


async def _usable() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The targets to use, by their kinds, and why the other kinds cannot be used."""
    from hermes_exec.cli.doctor import one_kind

    kinds = await asyncio.gather(*map(one_kind, FREE))
    usable = {kind.type: FREE[kind.type] for kind in kinds if kind.usable}
    return usable, [(kind.type, f"{kind.reason}. Try: {kind.remedy}") for kind in kinds if not kind.usable]


async def _project(folder: Path, *, offline: bool) -> Project:
    from hermes_exec.cli.demo import source

    if not offline:
        note(f"downloading {source.PACKAGE.replace('==', ' ')} and pytest")
        try:
            return await source.from_index(folder)
        except source.NoNetwork as error:
            note(f"no package index here ({error}); using the bundled project instead")
    return source.bundled(folder)


def _show(project: Project, outcomes: list[Outcome], unusable: list[tuple[str, str]]) -> None:
    from hermes_exec.cli.bench import readable

    def shown(seconds: float | None) -> str:
        return "" if seconds is None else readable(seconds)

    rows: list[list[str]] = []
    for outcome in outcomes:
        times: list[Any] = [outcome.open_s, outcome.session_s, outcome.program_s, outcome.job_s]
        rows.append([outcome.target, *map(shown, times), outcome.result])
    rows += [[kind, "", "", "", "", shorten(f"skipped: {why}", _LONGEST, placeholder=" …")] for kind, why in unusable]
    heads = (
        "PLACE",
        "COLD OPEN",
        "COMMAND IN A SESSION",
        "PROGRAM",
        "JOB",
        f"TESTS OF {project.title.upper()}",
    )
    show_table(heads, rows)
