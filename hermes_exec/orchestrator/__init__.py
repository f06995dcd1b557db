"""The orchestrator: many terminals in one process, and what is left of them after a crash. See docs/orchestrator.md."""

from hermes_exec.orchestrator.lease import Lease
from hermes_exec.orchestrator.orchestrator import Orchestrator, PoolStatus
from hermes_exec.orchestrator.pool import Pool
from hermes_exec.orchestrator.recovery import Fate, Recovered

__all__ = ["Fate", "Lease", "Orchestrator", "Pool", "PoolStatus", "Recovered"]
