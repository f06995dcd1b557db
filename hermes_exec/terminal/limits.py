"""Limits on what one command or job may use, and what enforces them in a place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from hermes_exec.transport.link import Link

_MOST = 1 << 40
"""More than any machine has of anything here; what is larger was mistyped."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command may use, with all that it starts; None leaves a thing unlimited.

    Where the place has a control group for it, the command's processes are counted together; elsewhere
    each process has the limit for itself (docs/jobs.md). A place that can enforce a limit by nothing
    refuses the command.

    Raises:
        UsageError: a limit is not a positive number.
    """

    cpu_s: float | None = None
    """Seconds of CPU time, not of the clock."""
    memory_mib: int | None = None
    processes: int | None = None
    """How many may run at once, the command itself included."""
    file_size_mib: int | None = None
    """The largest file that may be written."""
    open_files: int | None = None
    """The most descriptors of one process."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if value is None:
                continue
            kinds = int | float if field.name == "cpu_s" else int
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < _MOST:
                kind = "number" if field.name == "cpu_s" else "whole number"
                raise UsageError(f"{field.name}={value!r} is no limit", remedy=f"a {kind} above 0")

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
    """What holds a limit."""

    CGROUP_V2 = "cgroup v2"
    CGROUP_V1 = "cgroup v1"
    RLIMIT = "rlimit"
    """Each process for itself."""
    NONE = "none"
    """A command with this limit is refused here."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What enforces each limit in one place."""

    cpu: Enforcer
    memory: Enforcer
    processes: Enforcer
    file_size: Enforcer
    open_files: Enforcer


async def enforcement(link: Link) -> Enforcement:
    """Ask a place what enforces which limit there; it was tried, not assumed."""
    link.need("limits")
    answer = await link.request("limits_info", {})
    try:
        return Enforcement(**{field.name: Enforcer(answer[field.name]) for field in fields(Enforcement)})
    except (KeyError, ValueError) as error:
        raise ProtocolError("the guest's answer makes no sense") from error
