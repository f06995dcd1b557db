"""The one append-only record of conversations; resuming, listing, searching and exporting are views of it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events.event import Event, Kind
    from hermes_exec_agent.runtime.events.log import Conflict, EventLog, new_id
    from hermes_exec_agent.runtime.events.queries import SearchHit, Summary
    from hermes_exec_agent.runtime.events.turn_lock import TurnHeld, TurnLock, TurnLost

_HOME = {
    "Conflict": "log",
    "Event": "event",
    "EventLog": "log",
    "SearchHit": "queries",
    "Kind": "event",
    "Summary": "queries",
    "TurnHeld": "turn_lock",
    "TurnLock": "turn_lock",
    "TurnLost": "turn_lock",
    "new_id": "log",
}

__all__ = [
    "Conflict",
    "Event",
    "EventLog",
    "Kind",
    "SearchHit",
    "Summary",
    "TurnHeld",
    "TurnLock",
    "TurnLost",
    "new_id",
]


def __getattr__(name: str) -> object:
    """Load a public name."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
