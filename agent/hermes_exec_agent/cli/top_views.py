"""The tables of the agent in ``top``: conversations, and the cost of models."""

from __future__ import annotations

import time
from datetime import datetime

from hermes_exec.cli.top.view import Row, View

_LAST = 50
"""Conversations that are shown, the newest first."""
_DAY_S = 86400.0


def list_rows() -> list[Row]:
    """Return the newest conversations."""
    from hermes_exec_agent.frontends.chat.export import format_time
    from hermes_exec_agent.frontends.chat.listing import list_conversations
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        found = list_conversations(log, _LAST)
    return [
        Row(each.id, (each.id, format_time(each.last), str(each.turns), each.target, each.model, each.title))
        for each in found
    ]


def show_conversation(id: str) -> list[str]:
    """Return the lines of a conversation."""
    from hermes_exec_agent.frontends.chat.export import to_markdown
    from hermes_exec_agent.runtime.events import EventLog

    with EventLog.of_user() as log:
        events = log.events(id)
    return [line for text in to_markdown(events) for line in text.splitlines()]


def resume_conversation(id: str) -> tuple[str, ...]:
    """Return the command line that continues a conversation."""
    return ("chat", "--resume", id)


def list_costs() -> list[Row]:
    """Return the known cost of models today and in the last days; calls of unknown price count as nothing."""
    from hermes_exec_agent.runtime.events import EventLog

    now = time.time()
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    spans = {"today": midnight, "last 7 days": now - 7 * _DAY_S, "last 30 days": now - 30 * _DAY_S}
    with EventLog.of_user() as log:
        return [Row(name, (name, f"${log.cost_since(since):.4f}")) for name, since in spans.items()]


VIEWS = (
    View(
        "Conversations",
        ("ID", "LAST", "TURNS", "TARGET", "MODEL", "BEGINS"),
        list_rows,
        drop=("MODEL", "TARGET", "TURNS"),
        show=show_conversation,
        attach=resume_conversation,
    ),
    View("Money", ("MODELS", "KNOWN COST"), list_costs),
)
