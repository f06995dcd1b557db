"""``backends`` and ``doctor``: check what this machine can use, and suggest fixes."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.checks import (
    OURSELVES,
    Doctor,
    Report,
    check_backends,
    check_ourselves,
    check_target,
    load_doctors,
    run_doctor,
)
from hermes_exec.cli.console import CHECK_FAILED
from hermes_exec.cli.options import Json, Target
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import UsageError

_COLLAPSED = 2
"""Checks that are fine and share a line, at least."""


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add one of the commands to the application."""
    app.command(name, short_help=summary)(backends if name == "backends" else doctor)


def backends(
    *,
    cost: Annotated[
        bool, typer.Option("--cost", help="List running billable resources of this project, the oldest first.")
    ] = False,
    json: Json = False,
) -> int:
    """List the backends, whether this machine can use each, and the reason if not."""
    if cost:
        from hermes_exec.cli.cost import show_cost

        return interruptible.run(show_cost(json=json))
    reports = asyncio.run(check_backends())
    if json:
        show_json([{**_facts(report), "features": sorted(report.features)} for report in reports])
        return 0
    rows = [
        [each.type, "yes" if each.usable else "no", ", ".join(sorted(each.features)), each.reason, each.remedy]
        for each in reports
    ]
    show_table(("TYPE", "USABLE", "CAN", "WHY", "TRY"), rows, drop=("CAN",))
    return 0


def doctor(
    target: Target = None,
    *,
    reap: Annotated[
        bool,
        typer.Option(
            "--reap",
            help="End leftovers of dead orchestrators and crashed guests, and remove containers with an expired lease.",
        ),
    ] = False,
    model: Annotated[
        bool, typer.Option("--model", help="Also ask the agent's model one question, which may cost money.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", "--verbose", "-v", help="Print a line for each check that is fine.")
    ] = False,
    json: Json = False,
) -> int:
    """Check this machine and installed packages, or open one target and check it, and suggest fixes.

    Without TARGET, the checks of a subject that are fine share one line; --all and --json show each.

    Without TARGET, --model and --reap, it costs nothing and creates nothing. The exit code is 1 when a requirement is
    missing.
    """
    if model and (reap or target is not None):
        raise UsageError("--model checks the agent, so it excludes TARGET and --reap", remedy="leave one of them out")
    if reap:
        from hermes_exec.cli.cleanup import clean_up

        if target not in {None, "local"}:
            raise UsageError(
                "--reap cleans up this machine only", remedy=f"run --on {target} -- hermes-exec doctor --reap"
            )
        return interruptible.run(clean_up(json=json))
    return interruptible.run(_doctor(target, model=model, everything=everything or target is not None, json=json))


async def _doctor(target: str | None, *, model: bool, everything: bool, json: bool) -> int:
    if target is None:
        reports, needed = await _check_everything(model=model)
    else:
        reports = await check_target(target)
        needed = {report.type for report in reports}
    if json:
        show_json([_facts(report) for report in reports])
    else:
        rows = [row for report in reports for row in _list_rows(report, everything=everything)]
        show_table(("SUBJECT", "CHECK", "STATUS", "FOUND", "TRY"), rows, drop=("TRY",))
    return 0 if all(report.usable for report in reports if report.type in needed) else CHECK_FAILED


def _list_rows(report: Report, *, everything: bool) -> list[list[str]]:
    """Return a row for each check; unless ``everything`` is set, one row for all that are fine, above the others."""
    rows = {check: [report.type, check.name, check.status, check.detail, check.remedy] for check in report.checks}
    fine = [check for check in report.checks if check.status == "ok"]
    if everything or len(fine) < _COLLAPSED:
        return list(rows.values())
    names = ", ".join(check.name for check in fine)
    shared = [report.type, f"{len(fine)} checks", "ok", names, ""]
    return [shared, *(rows[check] for check in report.checks if check.status != "ok")]


async def _check_everything(*, model: bool) -> tuple[list[Report], set[str]]:
    """Return a report of each subject, and the names of those that must be usable."""
    doctors = load_doctors()
    loaded = {name: each for name, each in doctors.items() if isinstance(each, Doctor)}
    with_model = {name for name, each in loaded.items() if each.examine_with_model is not None} if model else set[str]()
    if model and not with_model:
        raise UsageError("--model: no installed package has a model to ask", remedy="install the agent")
    packages = asyncio.gather(*(run_doctor(name, each, model=model) for name, each in doctors.items()))
    backend_reports, package_reports = await asyncio.gather(check_backends(), packages)
    ourselves = check_ourselves({extra for each in loaded.values() for extra in each.extras})
    return [ourselves, *package_reports, *backend_reports], {OURSELVES, "local", *with_model}


def _facts(report: Report) -> dict[str, Any]:
    return {"type": report.type, "usable": report.usable, "checks": [asdict(check) for check in report.checks]}
