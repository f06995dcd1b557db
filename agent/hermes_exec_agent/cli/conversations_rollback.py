"""``conversations rollback``: restore the files that the turns of a conversation changed, without a chat."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_exec.cli.global_flags import flags
from hermes_exec_agent.cli.options import complete_conversations
from hermes_exec_agent.frontends.chat.listing import find_conversation

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog

_LEASE_S = 600.0
"""Seconds for which no other program may run a turn, if this one is killed."""


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
