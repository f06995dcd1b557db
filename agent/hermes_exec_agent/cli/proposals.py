"""``proposals``: changes of the configuration that the agent proposes, and that a person decides on."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.confirm import confirm
from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import UsageError
from hermes_exec_agent.agent_shell import refuse_agent, refuse_agents_descendant, require_terminal
from hermes_exec_agent.cli.options import complete_proposals
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from hermes_exec_agent.learning.proposals import Proposal
    from hermes_exec_agent.learning.proposals_apply import PlannedChange
    from hermes_exec_agent.learning.proposals_judge import Judgement
    from hermes_exec_agent.runtime.events import EventLog

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of a proposal, or its number.", autocompletion=complete_proposals),
]
_SHOWN = 60


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/learning.md.")
    for command in (list_proposals, show, try_proposal, accept, reject, revert, changes):
        group.command(command.__name__.partition("_")[0])(command)
    app.add_typer(group, name=name, short_help=summary)


def list_proposals(
    *,
    all: Annotated[bool, typer.Option("--all", help="List also those that were decided.")] = False,
    json: Json = False,
) -> int:
    """List the open proposals and the advice of audits, the latest first."""
    from hermes_exec_agent.learning.proposals import read_proposals
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        found = [each for each in reversed(read_proposals(log)) if all or each.state in ("open", "advice", "accepted")]
    if json:
        show_json([_to_json(each) for each in found])
    elif found:
        rows = [
            [each.name, each.state, each.file or "-", flags.clean(_mark(each)), _clean(each.data["reason"], _SHOWN)]
            for each in found
        ]
        show_table(("NAME", "STATE", "FILE", "MARK", "REASON"), rows)
    else:
        note("there is no proposal")
    return 0


def _mark(proposal: "Proposal") -> str:
    marks = proposal.data.get("marks", ())
    return ", ".join(dict.fromkeys(str(each).partition(" ")[0] for each in marks)) or "-"


def _clean(text: object, most: int = 2000) -> str:
    """Return untrusted text as one line that moves no cursor."""
    return flags.clean(flatten(str(text), most))


def show(proposal: Name, *, json: Json = False) -> int:
    """Show a proposal: what it changes now, its marks, its reason, and the events that it names."""
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.learning.proposals import find_proposal
    from hermes_exec_agent.learning.proposals_apply import plan_acceptance
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        found = find_proposal(log, proposal)
        if json:
            show_json(_to_json(found))
            return 0
        _print_proposal(log, found)
        try:
            _print_change(plan_acceptance(found, os.environ))
        except HermesError as error:
            for line in str(found.data.get("change", "")).splitlines():
                print(_escape(line))
            if found.state == "open":
                note(str(error))
    return 0


def _print_proposal(log: "EventLog", found: "Proposal") -> None:
    print(f"proposal {found.name}: {found.state}")
    print(f"reason: {_clean(found.data['reason'])}")
    conversation = str(found.data.get("conversation", ""))
    wanted = set(found.data.get("evidence", ()))
    for event in log.events(conversation) if wanted else ():
        if event.number in wanted:
            what = event.data.get("content") or event.data.get("arguments") or event.data.get("name") or ""
            print(f"evidence: {conversation}:{event.number} {event.kind} {_clean(what, 160)}")
    for source in found.data.get("sources", ()):
        print(f"read before: {_clean(source['tool'], 60)} {_clean(source['source'], 160)}")
    for event in found.history:
        stamp = time.strftime("%Y-%m-%d %H:%M", time.localtime(event.at))
        print(f"{stamp}  {event.data['action']} {event.data.get('commit', '')[:12]}".rstrip())
        for row in event.data.get("rows", ()):
            print(f"  {_clean(row['check'])}: {_clean(row['before'])} | {_clean(row['after'])}")


def _print_change(planned: "PlannedChange") -> None:
    for mark in planned.judgement.marks:
        print(_clean(mark))
    for line in planned.diff.splitlines():
        print(_escape(line))


def _escape(line: str) -> str:
    from hermes_exec.cli.console import escape_controls

    return flags.clean(escape_controls(line.replace("\t", "    ")))


def try_proposal(
    proposal: Name,
    *,
    tasks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also run these labelled tasks, which asks the model.")
    ] = None,
    approve: Annotated[
        str, typer.Option(metavar="allow|deny", help="Allow or deny tools that change something in these tasks.")
    ] = "deny",
    replay: Annotated[
        str | None, typer.Option(metavar="FILE", help="Replay scripted replies in each task instead of a model.")
    ] = None,
    json: Json = False,
) -> int:
    """Try a proposal on a copy of the configuration, and show each check before and with it."""
    from dataclasses import asdict

    from hermes_exec_agent.learning.proposals import find_proposal
    from hermes_exec_agent.learning.proposals_apply import plan_acceptance
    from hermes_exec_agent.learning.proposals_try import read_tasks, record_trial, run_trial
    from hermes_exec_agent.runtime.events import EventLog

    refuse_agent("try")
    if approve not in ("allow", "deny"):
        raise UsageError(f"--approve {approve}: no person is asked meanwhile", remedy="--approve allow, or deny")
    labelled = read_tasks(tasks) if tasks is not None else []
    options = ["--approve", approve, *(["--replay", str(Path(replay).absolute())] if replay is not None else [])]
    with EventLog.of_user() as log:
        found = find_proposal(log, proposal)
        planned = plan_acceptance(found, os.environ)
        rows = run_trial(
            planned, os.environ, tasks=labelled, options=options, tell=lambda name: note(f"trying: {name}")
        )
        record_trial(log, found.number, rows)
    if json:
        show_json({"name": found.name, "marks": planned.judgement.marks, "rows": [asdict(each) for each in rows]})
        return 0
    for mark in planned.judgement.marks:
        print(_clean(mark))
    show_table(("CHECK", "BEFORE", "WITH IT"), [[each.check, _clean(each.before), _clean(each.after)] for each in rows])
    return 0


def accept(proposal: Name) -> int:
    """Accept one proposal at a terminal: the change is shown, and made as one commit that can be reverted.

    One that loosens something, or changes a text that the model follows, asks you to type its name.
    """
    return _decide(proposal, "accept")


def revert(proposal: Name) -> int:
    """Undo an accepted proposal at a terminal, if what it changed was not changed since."""
    return _decide(proposal, "revert")


def _decide(proposal: str, verb: str) -> int:
    from hermes_exec_agent.learning.proposals import find_proposal
    from hermes_exec_agent.learning.proposals_apply import (
        apply_plan,
        finish_pending,
        plan_acceptance,
        plan_reversal,
    )
    from hermes_exec_agent.runtime.events import EventLog

    refuse_agents_descendant()
    with EventLog.of_user() as log:
        finish_pending(log, os.environ)
        found = find_proposal(log, proposal)
        planned = (plan_acceptance if verb == "accept" else plan_reversal)(found, os.environ)
        _print_proposal(log, found)
        _print_change(planned)
        require_terminal(verb)
        if not _ask(verb, found.name, planned.judgement):
            note("nothing was changed")
            return 1
        commit = apply_plan(log, planned, os.environ)
    note(f"{found.name}: {verb}ed in {planned.file}, commit {commit[:12]}")
    return 0


def _ask(verb: str, name: str, judgement: "Judgement") -> bool:
    """Ask the person: for yes, or for the name of the proposal if the change needs that."""
    if not judgement.needs_name:
        return confirm(f"{verb} {name}?")
    print(f"To {verb} this, type its name, {name}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == name


def reject(
    proposal: Name,
    *,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Record the reason.")] = "",
) -> int:
    """Reject an open proposal, or dismiss the advice of an audit."""
    from hermes_exec_agent.learning.proposals import find_proposal
    from hermes_exec_agent.learning.proposals import reject as record_rejection
    from hermes_exec_agent.runtime.events import EventLog

    refuse_agent("reject")
    with EventLog.of_user() as log:
        found = find_proposal(log, proposal)
        record_rejection(log, found.number, why)
    note(f"{found.name}: rejected")
    return 0


def changes() -> int:
    """Show the changes of the configuration that no person accepted; at a terminal, accept them as yours."""
    from hermes_exec_agent.learning.proposals_apply import acknowledge, finish_pending
    from hermes_exec_agent.learning.proposals_edit import make_diff
    from hermes_exec_agent.learning.proposals_watch import find_changes
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        finish_pending(log, os.environ)
        found = find_changes(os.environ)
        if not found:
            note("the configuration is as a person accepted it")
            return 0
        for file, (before, after) in found.items():
            for line in make_diff(file, before, after).splitlines():
                print(_escape(line))
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            note("the same command at a terminal accepts them")
            return 0
        refuse_agents_descendant()
        if not confirm("Are these changes yours?"):
            note("they stay unaccepted")
            return 1
        acknowledge(log, os.environ, found)
    note(f"accepted: {', '.join(found)}")
    return 0


def _to_json(proposal: "Proposal") -> dict[str, Any]:
    facts = proposal.facts()
    return {**facts, "history": [format_times(each, "at") for each in facts["history"]]}
