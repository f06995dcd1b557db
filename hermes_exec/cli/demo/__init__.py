"""``demo``: install and test a package in every usable target, and print a table."""

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.completion.values import complete_targets
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
"""The targets of backends that need neither an account nor a host, by backend."""
REQUIRED = "local"
"""The backend that must open; others that fail to open are skipped."""
_LONGEST = 120
"""Characters of the reason for skipping a target; --json has all of it."""


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(demo)


def demo(
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            "-o",
            metavar="TARGET",
            help="Run in this target only; may be repeated.",
            autocompletion=complete_targets,
        ),
    ] = None,
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Use the bundled project, as without a network.")] = False,
    reports: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the test reports in this folder.")] = None,
    json: Json = False,
) -> int:
    """Install and test a package in every usable target, and print a table of the times and results.

    The demo uploads a source distribution of the package index to a new folder, installs it in a virtual environment
    there, runs its test suite, and downloads the report. Without a network it uses a small bundled project. It removes
    everything at the end, also after Ctrl-C. Targets that fail to open are skipped unless --on names them. The exit
    code is 1 if the job failed in a target, or a target of --on did not open.
    """
    return interruptible.run(_demo(on or [], offline=offline, reports=reports, json=json))


async def _demo(on: list[str], *, offline: bool, reports: Path | None, json: bool) -> int:
    from hermes_exec.cli.demo.display import open_display
    from hermes_exec.cli.demo.job import do_job

    targets, unusable = ({target: target for target in on}, []) if on else await _find_usable()
    with tempfile.TemporaryDirectory(prefix="hermes-exec-demo-") as folder:
        project = await _fetch_project(Path(folder), offline=offline)
        kept = reports or Path(folder)
        await asyncio.to_thread(kept.mkdir, parents=True, exist_ok=True)
        outcomes: list[Outcome] = []
        for name, target in targets.items():
            with open_display() as display:
                outcome = await do_job(target, project, kept, display)
                display.finish()
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


async def _find_usable() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the usable targets by backend, and the reasons why other backends are not usable."""
    from hermes_exec.cli.checks import check_backend

    reports = await asyncio.gather(*map(check_backend, FREE))
    usable = {report.type: FREE[report.type] for report in reports if report.usable}
    return usable, [(each.type, f"{each.reason}. Try: {each.remedy}") for each in reports if not each.usable]


async def _fetch_project(folder: Path, *, offline: bool) -> Project:
    from hermes_exec.cli.demo import source

    if not offline:
        note(f"downloading {source.PACKAGE.replace('==', ' ')} and pytest")
        try:
            return await source.download_project(folder)
        except source.NoNetwork as error:
            note(f"the package index cannot be reached ({error}); using the bundled project instead")
    return source.pack_bundled(folder)


def _show(project: Project, outcomes: list[Outcome], unusable: list[tuple[str, str]]) -> None:
    from hermes_exec.cli.bench import format_duration

    def format_time(seconds: float | None) -> str:
        return "" if seconds is None else format_duration(seconds)

    rows: list[list[str]] = []
    for outcome in outcomes:
        times: list[Any] = [outcome.open_s, outcome.session_s, outcome.program_s, outcome.job_s]
        rows.append([outcome.target, *map(format_time, times), outcome.result])
    rows += [[kind, "", "", "", "", shorten(f"skipped: {why}", _LONGEST, placeholder=" …")] for kind, why in unusable]
    heads = (
        "TARGET",
        "COLD OPEN",
        "COMMAND IN A SESSION",
        "PROGRAM",
        "JOB",
        f"TESTS OF {project.title.upper()}",
    )
    show_table(heads, rows)
