"""``memory``: show and change what the agent remembers between conversations, and list the notes of conversations."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.console import note, say
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json, show_table, to_iso
from hermes_exec.cli.strict_typer import StrictTyper
from hermes_exec.errors import UsageError
from hermes_exec_agent.agent_shell import refuse_agent
from hermes_exec_agent.cli import memory_longterm
from hermes_exec_agent.cli.export import export_json
from hermes_exec_agent.cli.options import Output

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hermes_exec_agent.memory.entries import Target
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.memory.notes import Note
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime.events import EventLog

_TEXT = 100

Person = Annotated[
    str | None, typer.Option("--person", metavar="NAME", help="Use USER.md of this person; by default of the owner.")
]
User = Annotated[bool, typer.Option("--user", "-u", help="Use USER.md instead of MEMORY.md.")]


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the commands to the application."""
    group = StrictTyper(help=f"{summary} See docs/memory.md.")
    for command in (show, edit, forget, history, restore, undo, export, rebuild, notes):
        group.command(command.__name__)(command)
    memory_longterm.add(group)
    app.add_typer(group, name=name, short_help=summary)


def show(*, person: Person = None, json: Json = False) -> int:
    """Show the entries of both files, with their sizes and origins."""
    from hermes_exec_agent.memory.listing import describe_journal

    with open_journal(person) as journal:
        if json:
            show_json(_to_json(journal))
        else:
            for line in describe_journal(journal):
                print(flags.clean(line))
            _note_if_off()
    return 0


def _note_if_off() -> None:
    """Tell a person whose conversations do not read the files that they have to enable that."""
    from hermes_exec.config.load import load_settings

    memory = load_settings().memory
    settings = {"memory_enabled": memory.memory_enabled, "user_profile_enabled": memory.user_profile_enabled}
    off = [f"{name} = true" for name, is_on in settings.items() if not is_on]
    if len(off) == len(settings):
        note(f"conversations read neither file. To enable that: {', '.join(off)} below [memory]")


def edit(*, user: User = False, person: Person = None) -> int:
    """Edit a file in $VISUAL or $EDITOR; what the agent writes meanwhile is merged, and your changes win."""
    from hermes_exec_agent.memory.entries import Entry, join_entries, merge_edit, split_entries

    target = _target(user=user or person is not None)
    with open_journal(person, changes=True) as journal:
        base = journal.read(target)
        edited = split_entries(_edit_text(join_entries(base)))
        before = [each.text for each in base]
        if edited == before:
            note("nothing was changed")
            return 0
        _check(edited, before)
        aside: list[str] = []

        def change(entries: list[Entry]) -> list[Entry]:
            merged, aside[:] = merge_edit(before, edited, [each.text for each in entries])
            known = {each.text: each for each in entries}
            return [known.get(text) or Entry(text) for text in merged]

        journal.write(target, change, who="person", why="hermes-exec memory edit")
        if aside:
            journal.set_aside(target, aside)
            note(f"{len(aside)} entries of the agent that disagree were kept in {journal.path(target)}.other")
    return 0


def forget(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of the entry that no other entry has.")],
    *,
    user: User = False,
    person: Person = None,
) -> int:
    """Remove an entry, and the copies of the file next to it. The event log keeps the record."""
    from hermes_exec_agent.memory.entries import Operation, apply_operations

    target = _target(user=user or person is not None)
    with open_journal(person, changes=True) as journal:
        operation = Operation("remove", old_text=text)
        journal.write(
            target,
            lambda entries: apply_operations(entries, [operation]),
            who="person",
            why="hermes-exec memory forget",
        )
        journal.remove_copies(target)
    return 0


def history(*, person: Person = None, json: Json = False) -> int:
    """List all changes: when, by whom, from which conversation, and the entries that came and went.

    With --person, the list has the changes of that person's USER.md, with numbers of its own.
    """
    from hermes_exec_agent.memory.listing import list_changes

    with open_journal(person) as journal:
        events = journal.history()
    if json:
        show_json([{"number": each.number, **each.data, "at": to_iso(each.at)} for each in events])
    elif events:
        rows = [[flags.clean(_cut(cell)) for cell in row] for row in list_changes(events)]
        show_table(("N", "AT", "WHO", "FILE", "CONVERSATION", "CHANGE"), rows)
    else:
        note("nothing was remembered yet")
    return 0


def restore(
    number: Annotated[int, typer.Argument(metavar="N", help="The number of a change in history.")],
    *,
    person: Person = None,
) -> int:
    """Restore a file to its entries after a change."""
    with open_journal(person, changes=True) as journal:
        target, entries = journal.entries_at(number)
        journal.write(target, lambda _: entries, who="person", why=f"hermes-exec memory restore {number}")
    return 0


def undo(*, person: Person = None) -> int:
    """Take back what the last review kept: entries of memory, and versions of skills."""
    from hermes_exec_agent.learning.review_undo import undo_review
    from hermes_exec_agent.runtime.events import EventLog

    with open_journal(person, changes=True) as journal, EventLog.of_user() as log:
        for line in undo_review(log, journal).describe():
            print(flags.clean(line))
    return 0


def export(
    *,
    output: Output = None,
    person: Person = None,
) -> int:
    """Export all entries with their origins as JSON."""
    with open_journal(person) as journal:
        entries = _to_json(journal)
    export_json(entries, output)
    return 0


def rebuild() -> int:
    """Write files of all persons, search index and long-term memory from the event log; a file that differs is kept.

    A rebuild that was interrupted is continued.
    """
    with open_journal(changes=True) as journal:
        written = journal.rebuild()
    from hermes_exec_agent.learning.versions import forget_table
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        log.rebuild_index()
        forget_table(log)
    for path in written:
        note(f"written: {path}")
    if not written:
        note("the files are as the event log has them")
    note("the search index was built again")
    memory_longterm.rebuild_longterm()
    return 0


@contextlib.contextmanager
def open_journal(person: str | None = None, *, changes: bool = False) -> "Generator[Journal]":
    """Open the journal; a person may use all of it, also while conversations do not.

    Raises:
        UsageError: an agent's shell would change it, as changes are recorded as the person's.
    """
    if changes:
        refuse_agent()
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.memory.persons import Participant, choose_participant
    from hermes_exec_agent.runtime.events import EventLog

    settings = load_settings()
    participant = choose_participant(settings, person) or Participant()
    memory = settings.memory.model_copy(update={"memory_enabled": True, "user_profile_enabled": True})
    with EventLog.of_user() as log:
        yield Journal.of_user(log, memory, person=participant.name)


def _target(*, user: bool) -> "Target":
    return "user" if user else "memory"


def _check(edited: "Sequence[str]", before: "Sequence[str]") -> None:
    from hermes_exec_agent.memory.screening import find_refusal

    for text in edited:
        if text not in before and (reason := find_refusal(text)):
            raise UsageError(f"an entry may not be remembered: it has {reason}", remedy="edit again without that")


def _edit_text(text: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("there is no editor", remedy="EDITOR=… in the environment")
    with tempfile.TemporaryDirectory(prefix="hermes-memory-") as folder:
        path = Path(folder) / "memory.md"
        path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(editor), str(path)], check=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"the editor cannot be started: {error}", remedy="EDITOR=… in the environment") from error
        if done.returncode != 0:
            raise UsageError(f"the editor ended with code {done.returncode}; nothing was changed")
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("the edited file is not UTF-8 text; nothing was changed") from error


def _to_json(journal: "Journal") -> dict[str, Any]:
    return {target: [each.to_record() for each in journal.read(target)] for target in journal.limits}


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _TEXT else f"{flat[:_TEXT]}…"


def notes(
    *,
    write: Annotated[bool, typer.Option("--write", help="Write missing notes, and rewrite the program's.")] = False,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", min=1, help="Show the newest N only.")] = 20,
    json: Json = False,
) -> int:
    """List the notes of conversations, the newest first.

    --write has the auxiliary model write the notes of all conversations that have ended, or that had no event for half
    an hour. Without a model, or with session_notes = "program", the program writes them.
    """
    if write:
        refuse_agent()
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.memory.note_writer import find_pending
    from hermes_exec_agent.runtime.events import EventLog

    if write:
        _write_pending_notes()
    with EventLog.of_user() as log:
        found = _list_notes(log, last)
        pending = [] if write or load_settings().memory.session_notes != "model" else find_pending(log)
    if json:
        show_json([_note_facts(each) for each in found])
        return 0
    for each in found:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.last))
        by = f"by {each.model}" if each.how == "model" else "by the program"
        print(flags.clean(f"{each.conversation}  {at}  {by}"))
        for line in each.text.splitlines():
            print(flags.clean(f"  {line}"))
    if not found:
        note("there is no note yet")
    if pending:
        note(f"{len(pending)} conversations have no note of a model: hermes-exec memory notes --write")
    return 0


def _write_pending_notes() -> None:
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.models import load_models

    by_program = load_settings().memory.session_notes == "program"
    try:
        models = None if by_program else load_models()
    except NoModel as error:
        say(f"the program writes the notes, as there is no model: {error}")
        models = None
    asyncio.run(_write_notes(models))


async def _write_notes(models: "Models | None") -> None:
    from hermes_exec.observe.redact import Redactor
    from hermes_exec_agent.memory.note_writer import find_pending, write_pending
    from hermes_exec_agent.runtime.events import EventLog

    try:
        with EventLog.of_user(redactor=Redactor(models.secrets if models is not None else ())) as log:
            pending = await asyncio.to_thread(find_pending, log, retry=models is not None)
            await write_pending(log, models.auxiliary if models is not None else None, pending)
    finally:
        if models is not None:
            await models.close()


def _list_notes(log: "EventLog", last: int) -> "list[Note]":
    """Return the latest note of each of the conversations that were noted last."""
    from hermes_exec_agent.memory.notes import STREAM, latest_note

    events = log.events(STREAM, max(log.last(STREAM) - 4 * last, 0))
    ids = dict.fromkeys(str(each.data["conversation"]) for each in reversed(events))
    return [found for each in list(ids)[:last] if (found := latest_note(log, each)) is not None]


def _note_facts(each: "Note") -> dict[str, Any]:
    return format_times({**each.to_record(), "text": each.text}, "begun", "last")
