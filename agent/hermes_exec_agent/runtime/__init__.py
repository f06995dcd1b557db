"""The loop: observe, act, look at the outcome, do better; until there is an answer."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.runtime.conversation import Conversation
    from hermes_exec_agent.runtime.guardrails import Guardrails
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
        Text,
        Thought,
        Update,
        Warned,
    )

_HOME = {
    "Answer": "updates",
    "Budget": "turn",
    "CallEnded": "updates",
    "CallStarted": "updates",
    "Compacted": "updates",
    "Conversation": "conversation",
    "Delegated": "updates",
    "Ended": "updates",
    "Guardrails": "guardrails",
    "Options": "options",
    "Replied": "updates",
    "Retried": "updates",
    "Text": "updates",
    "Thought": "updates",
    "Update": "updates",
    "Warned": "updates",
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
    "Options",
    "Replied",
    "Retried",
    "Text",
    "Thought",
    "Update",
    "Warned",
    "open_conversation",
]


def __getattr__(name: str) -> object:
    """Load a public name."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
