"""The orchestrator: many terminals in one process, and their recovery after a crash. See docs/orchestrator.md."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_exec.pool.lease import Lease
    from hermes_exec.pool.options import Pool
    from hermes_exec.pool.orchestrator import Orchestrator, PoolStatus
    from hermes_exec.pool.recovery import Fate, Recovered

_HOME = {
    "Fate": "recovery",
    "Lease": "lease",
    "Orchestrator": "orchestrator",
    "Pool": "options",
    "PoolStatus": "orchestrator",
    "Recovered": "recovery",
}

__all__ = ["Fate", "Lease", "Orchestrator", "Pool", "PoolStatus", "Recovered"]


def __getattr__(name: str) -> object:
    """Load a public name at its first use, so that importing `owner` alone does not load the other modules."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
