"""The agent's loop: ask the model, run its tool calls, return their results, until it answers."""

from hermes_exec._lazy import lazy_loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.runtime.conversation import Conversation
    from hermes_exec_agent.runtime.guardrails import Guardrails
    from hermes_exec_agent.runtime.links import LinkFilter, links_to_text
    from hermes_exec_agent.runtime.opening import open_conversation
    from hermes_exec_agent.runtime.options import Options
    from hermes_exec_agent.runtime.turn import Budget
    from hermes_exec_agent.runtime.updates import (
        Answer,
        CallEnded,
        CallStarted,
        Compacted,
        Delegated,
        Ended,
        Replied,
        Retried,
        Steered,
        Text,
        Thought,
        Update,
        Warned,
    )

_MODULES = {
    "Answer": "updates",
    "Budget": "turn",
    "CallEnded": "updates",
    "CallStarted": "updates",
    "Compacted": "updates",
    "Conversation": "conversation",
    "Delegated": "updates",
    "Ended": "updates",
    "Guardrails": "guardrails",
    "LinkFilter": "links",
    "Options": "options",
    "Replied": "updates",
    "Retried": "updates",
    "Steered": "updates",
    "Text": "updates",
    "Thought": "updates",
    "Update": "updates",
    "Warned": "updates",
    "links_to_text": "links",
    "open_conversation": "opening",
}

__all__ = [
    "Answer",
    "Budget",
    "CallEnded",
    "CallStarted",
    "Compacted",
    "Conversation",
    "Delegated",
    "Ended",
    "Guardrails",
    "LinkFilter",
    "Options",
    "Replied",
    "Retried",
    "Steered",
    "Text",
    "Thought",
    "Update",
    "Warned",
    "links_to_text",
    "open_conversation",
]

__getattr__ = lazy_loader(__name__, _MODULES)
