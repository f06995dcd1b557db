"""The append-only log of conversations, from which they are resumed, listed, searched and exported."""

from hermes_exec._lazy import lazy_loader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events.event import Event, Kind
    from hermes_exec_agent.runtime.events.log import Conflict, EventLog, new_id
    from hermes_exec_agent.runtime.events.queries import Summary
    from hermes_exec_agent.runtime.events.search import SearchFilter, SearchHit
    from hermes_exec_agent.runtime.events.turn_lock import TurnHeld, TurnLock, TurnLost

_MODULES = {
    "Conflict": "log",
    "Event": "event",
    "EventLog": "log",
    "SearchFilter": "search",
    "SearchHit": "search",
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
    "SearchFilter",
    "SearchHit",
    "Summary",
    "TurnHeld",
    "TurnLock",
    "TurnLost",
    "new_id",
]

__getattr__ = lazy_loader(__name__, _MODULES)
