"""Reflection: four questions about the agent's work that the note of a longer conversation answers.

The model that writes the note answers them in the same reply. Each answer has the numbers of the events that show it,
like the other sentences of a note, and is left out without valid ones. An answer is the model's opinion: it is no
evidence for the outcome of a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec_agent.memory.notes import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.memory.notes import Part
    from hermes_exec_agent.runtime.events.event import Event

CALLS = 5
"""Calls of tools from which on a conversation is reflected."""
TOKENS = 800
"""Tokens of a reply, in addition to those of the note."""
_QUESTIONS: dict[Part, str] = {
    "solved": "was the request solved well, and what shows it?",
    "faster": "which steps were not needed, and what would have been faster?",
    "assumed": "what did the agent assume without a check?",
    "next": "what should it do, or leave out, the next time?",
}
ASK = (
    " Add four more lists with items of the same form, about the work of the agent: "
    + " ".join(f'"{part}": {question}' for part, question in _QUESTIONS.items())
    + " Leave a list empty if no event answers it. At most 700 characters more."
)
"""Follows the request for a note."""


def find_questions(events: Sequence[Event]) -> tuple[Part, ...]:
    """Return the questions that the note of a conversation answers; none if it has fewer than `CALLS` calls."""
    return ANSWERS if sum(event.kind == "call" for event in events) >= CALLS else ()


def extend_schema(schema: Mapping[str, Any], sentences: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a note with the lists of answers, each of the form ``sentences``."""
    return {
        **schema,
        "properties": {**schema["properties"], **dict.fromkeys(ANSWERS, sentences)},
        "required": [*schema["required"], *ANSWERS],
    }
