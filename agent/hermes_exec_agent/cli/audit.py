"""``audit``: reports on what went well and what failed again, after every 15 tasks."""

from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json
from hermes_exec.cli.strict_typer import StrictTyper

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/learning.md.")
    for command in (show, run):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def show(
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", help="The number of an audit; the latest by default.")
    ] = None,
    *,
    json: Json = False,
) -> int:
    """Show an audit as it is recorded in the event log."""
    from hermes_exec_agent.learning.audit import read_audit
    from hermes_exec_agent.learning.audit_report import format_markdown
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        audit = read_audit(log, number)
    if json:
        show_json(format_times(audit, "at"))
    else:
        print(flags.clean(format_markdown(audit)), end="")
    return 0


def run(
    *,
    model: Annotated[
        bool, typer.Option("--model", help="Let the auxiliary model add a paragraph, marked as its own.")
    ] = False,
) -> int:
    """Audit the tasks since the last audit now, and write the reports that are missing."""
    from hermes_exec_agent.learning.audit import read_end, reports_folder, run_audits
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        created = run_audits(log, early=True)
        for number in created:
            note(f"written: {reports_folder(log) / f'{number}.md'}")
        last = read_end(log)[0]
        if not created:
            note(f"no task since audit {last}" if last else "no task has ended yet")
        if model and last:
            return _add_paragraph(log, last)
    return 0


def _add_paragraph(log: "EventLog", number: int) -> int:
    from hermes_exec.cli import interruptible
    from hermes_exec_agent.learning.audit import write_paragraph
    from hermes_exec_agent.models import load_models

    async def ask() -> int:
        models = load_models()
        try:
            await write_paragraph(log, number, models.auxiliary)
        finally:
            await models.close()
        note(f"the model {models.auxiliary.name} added a paragraph to audit {number}")
        return 0

    return interruptible.run(ask())
