"""Whether the process that wrote a record still runs, decided without locks, which network file systems lack."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from hermes_exec.guest.core import orphan_cleanup, process_tree


class Liveness(Enum):
    """The identity of the process that wrote a record."""

    LIVING = "living"
    DEAD = "dead"
    ELSEWHERE = "elsewhere"
    """On another machine or in another container: it cannot be checked from here, so it counts as running."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, distinguished from every other one that ever has its number."""

    pid: int
    started: int
    """In clock ticks since the boot; 0 where the system does not report it."""
    host: str
    boot: str
    namespace: str
    """The PID namespace, since each container counts its processes by itself."""
    since: float
    """Seconds since 1970."""
    machine: str = ""
    """The content of ``/etc/machine-id``; empty where there is none."""

    @classmethod
    def current(cls) -> Owner:
        """Return the owner that stands for the calling process."""
        pid = os.getpid()
        started, host, boot = process_tree.stat(pid)[2], os.uname().nodename, orphan_cleanup.boot_id()
        return cls(pid, started, host, boot, _namespace(), time.time(), _machine())

    @classmethod
    def from_values(cls, values: Any) -> Owner:
        """Parse the content of a file, which is untrusted.

        Raises:
            TypeError, ValueError: a field is missing or invalid.
        """
        owner = cls(**values)
        for each in fields(cls):
            kind = {"pid": (int,), "started": (int,), "since": (int, float)}.get(each.name, (str,))
            value: Any = getattr(owner, each.name)
            if isinstance(value, bool) or not isinstance(value, kind):
                raise TypeError(f"{each.name} is of the wrong kind")
        if owner.pid <= 0 or not owner.host.isprintable():
            raise ValueError("no process has such a number or host")
        return owner

    @property
    def values(self) -> dict[str, Any]:
        """The fields as ``from_values`` takes them."""
        return asdict(self)

    @property
    def liveness(self) -> Liveness:
        """Whether the process still runs."""
        if self.host != os.uname().nodename:
            return Liveness.ELSEWHERE
        if self.boot != orphan_cleanup.boot_id():
            # Restarted; or another machine of the same name, as containers and clones of an image may be.
            is_same = bool(self.machine) and self.machine == _machine()
            return Liveness.DEAD if is_same else Liveness.ELSEWHERE
        if self.namespace != _namespace():
            return Liveness.ELSEWHERE
        if not self.boot:  # without /proc another process with the same number cannot be distinguished
            return Liveness.LIVING if _exists(self.pid) else Liveness.DEAD
        state, _, started = process_tree.stat(self.pid)
        return Liveness.LIVING if state not in {b"", b"Z", b"X"} and started == self.started else Liveness.DEAD


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
