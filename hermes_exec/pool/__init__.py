"""The orchestrator: many terminals in one process, and their recovery after a crash. See docs/orchestrator.md."""

from hermes_exec._lazy import lazy_loader

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


__getattr__ = lazy_loader(__name__, _HOME)
