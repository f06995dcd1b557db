"""Resource limits of a command or a job, and the mechanisms that enforce them in a target."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hermes_exec._arguments import check_calls
from hermes_exec.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from hermes_exec.transport.link import Link

_MOST = 1 << 40
"""An upper bound on every limit; a larger number is a typing error."""


@check_calls
@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that a command and its child processes may use; None means no limit.

    Where the target has a control group for a resource, the processes of the command are counted together; elsewhere
    the limit applies to each process by itself (docs/jobs.md). A command with a limit that the target cannot enforce
    is refused.

    Raises:
        UsageError: a limit is not a positive number.
    """

    cpu_s: float | None = None
    """Seconds of CPU time, not of wall-clock time."""
    memory_mib: int | None = None
    processes: int | None = None
    """The most processes at one time, the command itself included."""
    file_size_mib: int | None = None
    """The size of the largest file that it may write."""
    open_files: int | None = None
    """The most open file descriptors of one process."""

    def __post_init__(self) -> None:
        """Check every limit."""
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if value is None:
                continue
            kinds = int | float if field.name == "cpu_s" else int
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < _MOST:
                kind = "number" if field.name == "cpu_s" else "whole number"
                raise UsageError(f"{field.name}={value!r} is not a valid limit", remedy=f"a {kind} above 0")

    def as_fields(self) -> dict[str, int | float]:
        """The ``limits`` of a request (docs/protocol.md): bytes, seconds and counts."""
        values = {
            "cpu": None if self.cpu_s is None else float(self.cpu_s),
            "memory": None if self.memory_mib is None else self.memory_mib << 20,
            "processes": self.processes,
            "file_size": None if self.file_size_mib is None else self.file_size_mib << 20,
            "open_files": self.open_files,
        }
        return {name: value for name, value in values.items() if value is not None}


class Enforcer(StrEnum):
    """The mechanism that enforces a limit."""

    CGROUP_V2 = "cgroup v2"
    CGROUP_V1 = "cgroup v1"
    RLIMIT = "rlimit"
    """Applies to each process by itself."""
    NONE = "none"
    """A command with this limit is refused here."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """The mechanism that enforces each limit in one target."""

    cpu: Enforcer
    memory: Enforcer
    processes: Enforcer
    file_size: Enforcer
    open_files: Enforcer


async def query_enforcement(link: Link) -> Enforcement:
    """Ask the guest which mechanism enforces each limit; it has tested them."""
    link.load_part("limits")
    answer = await link.request("limits_info", {})
    try:
        return Enforcement(**{field.name: Enforcer(answer[field.name]) for field in fields(Enforcement)})
    except (KeyError, ValueError) as error:
        raise ProtocolError("the guest sent invalid limits") from error
