"""``memory notes``: list the notes of conversations, and write those that are missing."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hermes_exec.cli.console import note, say
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.options import Json
from hermes_exec.cli.output import format_times, show_json
from hermes_exec_agent.agent_shell import refuse_agent

if TYPE_CHECKING:
    from hermes_exec_agent.memory.notes import Note
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime.events import EventLog


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
        _write_pending()
    with EventLog.of_user() as log:
        found = _list_notes(log, last)
        pending = [] if write or load_settings().memory.session_notes != "model" else find_pending(log)
    if json:
        show_json([_to_json(each) for each in found])
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


def _write_pending() -> None:
    from hermes_exec.config.load import load_settings
    from hermes_exec_agent.errors import NoModel
    from hermes_exec_agent.models import load_models

    by_program = load_settings().memory.session_notes == "program"
    try:
        models = None if by_program else load_models()
    except NoModel as error:
        say(f"the program writes the notes, as there is no model: {error}")
        models = None
    asyncio.run(_write(models))


async def _write(models: "Models | None") -> None:
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


def _to_json(each: "Note") -> dict[str, Any]:
    return format_times({**each.to_record(), "text": each.text}, "begun", "last")
