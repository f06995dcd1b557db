"""``learn``: the outcomes of tasks and of versions of skills, a person's judgement, and measurements."""

from typing import Annotated

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.cli.measure import measure
from hermes_exec_agent.cli.options import complete_conversations, complete_skills
from hermes_exec_agent.frontends.chat.listing import find_conversation

_VERDICTS = {"good": True, "bad": False}


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/learning.md.")
    for command in (outcomes, outcome, versions, measure):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def outcomes(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="List at most N tasks.")] = 20,
    json: Json = False,
) -> int:
    """List the latest tasks with their outcomes and the evidence for them."""
    from hermes_exec_agent.learning.outcomes import derive_missing, read_outcomes
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        derive_missing(log)
        found = read_outcomes(log, limit)
    if json:
        show_json(found)
    elif found:
        rows = [
            [
                str(each["task"]), f"{each['conversation']}:{each['request']}", each["result"],
                flags.clean(each["evidence"]["detail"] or each["evidence"]["kind"]), flags.clean(each["kind"]),
                f"{each['failed']}/{each['calls']}",
            ]
            for each in found
        ]  # fmt: skip
        show_table(("TASK", "ID", "RESULT", "EVIDENCE", "KIND", "FAILED"), rows)
    else:
        note("no task has ended yet")
    return 0


def outcome(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A conversation, whose latest task is meant, or CONVERSATION:REQUEST.",
            autocompletion=complete_conversations,
        ),
    ],
    verdict: Annotated[str, typer.Argument(metavar="good|bad", help="Whether the task ended well.")],
    *,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Record the reason.")] = "",
) -> int:
    """Record your judgement of a task; it replaces an earlier one, and the result of a check."""
    from hermes_exec_agent.agent_shell import refuse_agent
    from hermes_exec_agent.learning.outcomes import Evidence, find_request, judge_task
    from hermes_exec_agent.runtime.events import EventLog

    refuse_agent()
    if verdict not in _VERDICTS:
        raise UsageError(f"{verdict}: not a judgement", remedy="good or bad")
    conversation, _, text = id.partition(":")
    number = parse_number(text)
    if text and number is None:
        raise UsageError(f"{id}: the part behind the colon should be a number", remedy="hermes-exec learn outcomes")
    with EventLog.of_user() as log:
        found = find_conversation(log, conversation)
        request = find_request(log, found) if number is None else number
        record = judge_task(log, found, request, Evidence("person", _VERDICTS[verdict], why))
    note(f"task {record['task']} ({found}:{request}): {record['result']}")
    return 0


def versions(
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", help="The name of a skill; all by default.", autocompletion=complete_skills),
    ] = "",
    *,
    json: Json = False,
) -> int:
    """Count the outcomes of the tasks that used each version of a skill, by model.

    A version that does worse than the one before it falls back by itself, unless the skill is pinned.
    """
    from hermes_exec_agent.learning.outcomes import derive_missing
    from hermes_exec_agent.learning.versions import read_versions
    from hermes_exec_agent.runtime.events import EventLog

    if name and not name.isprintable():
        raise UsageError(f"{to_printable(name)} is no name of a skill", remedy="hermes-exec skill list")
    with EventLog.of_user() as log:
        derive_missing(log)
        found = read_versions(log, name)
    if json:
        show_json([each.facts() for each in found])
    elif found:
        rows = [
            [each.name, str(each.version), each.model, *map(str, (each.succeeded, each.failed, each.unknown))]
            for each in found
        ]
        show_table(("SKILL", "VERSION", "MODEL", "SUCCEEDED", "FAILED", "UNKNOWN"), rows)
    else:
        note(f"no task has used {f'the skill {name}' if name else 'a skill'} yet")
    return 0
