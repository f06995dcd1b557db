"""``conversations``: list, show, search, export and roll back recorded conversations with the agent."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.console import note
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json, show_table
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.cli.options import Output, complete_conversations
from hermes_exec_agent.frontends.chat.listing import find_conversation, list_conversations

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog

_TITLE = 60
_SNIPPET = 100

Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id of a conversation or its beginning; last is the newest.",
        autocompletion=complete_conversations,
    ),
]
Last = Annotated[int, typer.Option("--last", "-n", metavar="N", min=1, help="Show the newest N only.")]
_LEASE_S = 600.0
"""Seconds for which no other program may run a turn, if this one is killed."""


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/chat.md.")
    group.command("list")(print_conversations)
    for command in (show, search, export, rollback):
        group.command(command.__name__)(command)
    app.add_typer(group, name=name, short_help=summary)


def print_conversations(
    *,
    last: Last = 50,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include delegated and empty conversations.")] = False,
    json: Json = False,
) -> int:
    """List conversations, the newest first."""
    from hermes_exec_agent.frontends.chat.export import format_time

    with _open_log() as log:
        found = list_conversations(log, last, everything=everything)
    if json:
        show_json([_to_json(each) for each in found])
    elif found:
        rows = [
            [each.id, format_time(each.last), str(each.turns), each.target, each.model, _cut(each.title, _TITLE)]
            for each in found
        ]
        show_table(("ID", "LAST", "TURNS", "TARGET", "MODEL", "BEGINS"), rows)
    else:
        note("there is no conversation yet")
    return 0


def show(conversation: Id, *, json: Json = False) -> int:
    """Show a conversation; --json prints every event."""
    from hermes_exec_agent.frontends.chat.export import to_markdown

    with _open_log() as log:
        events = log.events(find_conversation(log, conversation))
    if json:
        show_json([_to_json(event) for event in events])
    else:
        for line in to_markdown(events):
            print(flags.clean(line))
    return 0


def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="The words to search for.")],
    *,
    last: Last = 50,
    since: Annotated[
        str, typer.Option("--since", metavar="DATE", help="From a date: 2026-01-31, today, yesterday, 12h, 7d.")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="DATE", help="Until a date; a day is included.")] = "",
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="SCOPE",
            help="Search messages, results, notes or thoughts, one conversation by its ID, or those in a target. May "
            "be repeated.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Search the messages, results and notes of all conversations for these words, and for parts of words.

    With long-term memory, messages near in meaning are found as well, and both rankings are mixed. Without it, matches
    of all words come first. Thoughts of models are searched with --in thoughts alone.
    """
    from hermes_exec_agent.frontends.chat.export import format_time
    from hermes_exec_agent.frontends.chat.search_options import create_filter
    from hermes_exec_agent.memory.mixed_search import search_as_configured

    with _open_log() as log:
        wanted = create_filter(log, since, until, within or ())
        found = search_as_configured(log, " ".join(words), last, wanted, note)
    if json:
        show_json([_to_json(each) for each in found])
    elif found:
        rows = [
            [f"{each.conversation}#{each.number}", format_time(each.at), each.kind, _cut(each.snippet, _SNIPPET)]
            for each in found
        ]
        show_table(("ID", "AT", "WHAT", "TEXT"), rows)
    else:
        note(f"nothing in {', '.join(map(to_printable, within)) if within else 'the log'} has these words")
    return 0


def export(
    conversation: Id,
    *,
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="jsonl|markdown|messages", help="Select the format of the file.")
    ] = "jsonl",
    output: Output = None,
) -> int:
    """Export a conversation as all events, as a document, or as the messages that a model reads.

    Every format but messages marks a scripted conversation.
    """
    from hermes_exec_agent.frontends.chat.export import parse_format
    from hermes_exec_agent.frontends.chat.slash_commands import format_export, write_export

    chosen_form = parse_format(form)
    if output is not None and not (folder := Path(output).expanduser().absolute().parent).is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    with _open_log() as log:
        id = find_conversation(log, conversation)
        if output is not None:
            write_export(output, log, id, chosen_form)
            return 0
        for line in format_export(log, id, chosen_form):
            print(flags.clean(line.rstrip("\n")))
    return 0


def _open_log() -> "EventLog":
    from hermes_exec_agent.runtime.events import EventLog

    return EventLog.of_user()


def _to_json(row: Any) -> dict[str, Any]:
    return format_times({name: getattr(row, name) for name in row.__slots__}, "at", "started", "last")


def _cut(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[:most]}…"


def rollback(
    conversation: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The id of a conversation or its beginning; last is the newest.",
            autocompletion=complete_conversations,
        ),
    ],
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", min=1, help="Restore the files as they were before this turn.")
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Also replace files that were changed since.")] = False,
) -> int:
    """List the turns of a conversation with the files that they changed, or restore these files.

    The conversation's target is opened for a restoration. A restoration is a turn of the list, and can be undone.
    """
    from hermes_exec_agent.agent_shell import refuse_agent
    from hermes_exec_agent.frontends.chat.rollback_lines import describe_steps
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.runtime.rollback import list_steps

    refuse_agent()
    with EventLog.of_user() as log:
        id = find_conversation(log, conversation)
        events = log.events(id)
        kept_in = [str(event.data.get("target")) for event in events if event.kind == "files"]
        if number:
            lines = asyncio.run(_rollback(log, id, number, force=force))
        else:
            lines = list(describe_steps(list_steps(events, kept_in[-1] if kept_in else "")))
    for line in lines:
        print(flags.clean(line))
    return 0


async def _rollback(log: "EventLog", id: str, number: int, *, force: bool) -> list[str]:
    import hermes_exec
    from hermes_exec_agent.runtime.history import EventRecorder
    from hermes_exec_agent.runtime.rollback import rollback as restore

    recorder = EventRecorder(log, id)
    (first, *_) = await recorder.load()
    async with hermes_exec.open(str(first.data["target"])) as terminal:
        await recorder.acquire(_LEASE_S)
        try:
            report = await restore(log.events(id), terminal, number, recorder.record, force=force)
        finally:
            await recorder.release()
    return report.describe()
