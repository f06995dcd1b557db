"""``curator``: archive the agent's unused skills, and merge those that overlap."""

import contextlib
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli.skill_judge import open_registry

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_agent.learning.curator import Curator, RunResult
    from hermes_exec_agent.learning.curator_plan import Plan
    from hermes_exec_agent.runtime.events import EventLog


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/learning.md.")
    for command in (run, status, restore):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def run(
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the changes; without it, they are only reported.")
    ] = False,
    if_due: Annotated[
        bool,
        typer.Option(
            "--if-due",
            help="Run only a week after the last run, and two hours after the last conversation. The first run is a "
            "report, and later ones make the changes.",
        ),
    ] = False,
    after: Annotated[
        str, typer.Option(metavar="ID", help="With --if-due: do not count this conversation, which has ended.")
    ] = "",
    json: Json = False,
) -> int:
    """Report the skills to archive and to merge, or do it with --apply.

    Only skills that the agent wrote are touched, and none that is pinned. Nothing is deleted: restore undoes a run.
    """
    if apply and if_due:
        raise UsageError("--if-due excludes --apply", remedy="leave one of them out")
    if after and not if_due:
        raise UsageError("--after needs --if-due", remedy=f"--if-due --after {after}")
    if apply:
        refuse_agent("run --apply")
    return interruptible.run(_run(after, apply=apply, if_due=if_due, json=json))


async def _run(after: str, *, apply: bool, if_due: bool, json: bool) -> int:
    from hermes_exec_agent.learning.curator import CuratorBusy
    from hermes_exec_agent.learning.curator_schedule import find_last_run, is_due

    with _open_curator() as (curator, log):
        if if_due:
            if not is_due(log, time.time(), ending=after):
                note("no run is due")
                return 0
            apply = find_last_run(log) is not None
        try:
            result = await curator.run(apply=apply)
        except CuratorBusy:
            if if_due:
                return 0
            raise
    if json:
        show_json(asdict(result))
    elif result.applied:
        _print_result(result)
    else:
        _print_plan(result.plan)
    return 0


def status(*, json: Json = False) -> int:
    """Show when the curator last ran, what it did, and what it would do now."""
    from hermes_exec_agent.learning.curator_schedule import find_last_run, is_due

    with _open_curator() as (curator, log):
        plan, history = curator.plan(), curator.history()
        last, due = find_last_run(log), is_due(log, time.time())
        kept = [each.run for each in curator.backups.list_backups()]
    if json:
        did = [format_times(each, "at") for each in history]
        facts = {"last": last, "due": due, "would": plan.facts(), "did": did, "backups": kept}
        show_json(format_times(facts, "last"))
        return 0
    print(f"last run: {_format_time(last) if last is not None else 'none'}")
    for event in history:
        if line := _describe(event):
            print(flags.clean(f"{_format_time(event['at'])}  {event['run']}  {line}"))
    _print_plan(plan)
    return 0


def restore(
    run: Annotated[
        str, typer.Argument(metavar="[ID]", help="A run; by default the latest one that can be undone.")
    ] = "",
    *,
    json: Json = False,
) -> int:
    """Undo a run: its skills are as they were before. Skills that were changed since then stay as they are.

    The backups of the last five runs that changed something are kept.
    """
    refuse_agent("restore")
    with _open_curator() as (curator, _):
        done = curator.restore(run)
    if json:
        show_json(asdict(done))
        return 0
    for name in done.left:
        note(f"{name}: changed since the run, so it stays as it is")
    note(f"run {done.run}: restored {', '.join(done.restored) or 'nothing'}")
    return 0


@contextlib.contextmanager
def _open_curator() -> "Generator[tuple[Curator, EventLog]]":
    registry = open_registry()  # first: it needs an extra
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.learning.curator import Curator
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        yield Curator(registry, log, exempt=load_settings().learning.curator_exempt, tell=note), log


def _print_plan(plan: "Plan") -> None:
    lines = [
        *(f"would archive {each.name}: {each.why}" for each in plan.archive),
        *(f"would merge {each.drop} into {each.keep}: {each.why}" for each in plan.overlaps),
        *(f"stale: {each.name}: no use for {each.days} days" for each in plan.stale),
    ]
    for line in lines:
        print(flags.clean(line))
    note(f"{len(plan.archive)} to archive, {len(plan.overlaps)} to merge, {len(plan.exempt)} exempt")


def _print_result(result: "RunResult") -> None:
    for line in result.advice:
        print(flags.clean(f"unchanged: {line}"))
    note(f"run {result.run}: archived {len(result.archived)}, merged {len(result.merged)}")
    if result.archived or result.merged:
        note(f"hermes-exec curator restore {result.run} undoes it")


def _describe(event: dict[str, Any]) -> str:
    match event["what"]:
        case "archived":
            return f"archived {event['name']}: {event['why']}"
        case "merged":
            return f"merged {event['drop']} into {event['keep']} {event['version']}: {event['why']}"
        case "advised":
            return f"unchanged: {' and '.join(event['names'])}: {event['why']}"
        case "restored":
            return f"restored {', '.join(event['names']) or 'nothing'}"
        case "reported":
            return "reported"
        case _:
            return "interrupted" if event.get("interrupted") else ""


def _format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
