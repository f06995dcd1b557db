"""Render a policy as the layout of a bubblewrap sandbox, without the parts that depend on the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/cmdline", "/proc/config.gz", "/proc/diskstats", "/proc/interrupts",
    "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg",
    "/proc/latency_stats", "/proc/locks", "/proc/modules", "/proc/partitions", "/proc/sched_debug", "/proc/scsi",
    "/proc/softirqs", "/proc/timer_list", "/proc/vmallocinfo",
)  # fmt: skip
"""Files in /proc about the machine or other users; each is empty inside. Files about free memory, load and processors
stay, because programs tune themselves by these."""
_OWN = ("/proc", "/dev")
"""Folders that the sandbox creates itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFolder:
    """A tmpfs folder."""

    target: str
    size: int | None
    inodes: int | None
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The file system and the namespaces of a sandbox."""

    whole: bool
    """Whether all files of the machine are mounted, instead of only ``binds``."""
    binds: tuple[str, ...]
    """Paths that are mounted read-only at the same path inside."""
    folders: tuple[MemoryFolder, ...]
    masked: tuple[str, ...]
    namespaces: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


def layout(policy: Policy) -> Layout:
    """Build the layout of a policy's sandbox."""
    files, processes = policy.files, policy.processes
    own = {*_OWN, *policy.writable}
    binds = [path for path in (*files.run, *files.read) if path not in own and not path.startswith("/app/")]
    namespaces = {
        "user": True,
        "pid": processes.hidden,
        "net": policy.network.access != "open",
        "ipc": processes.ipc == "private",
        "uts": processes.hidden,
        "cgroup": processes.hidden,
    }
    return Layout(
        whole=not files.hidden,
        binds=tuple(sorted({*binds})),
        folders=tuple(_folder(policy, path) for path in sorted({*policy.writable})),
        masked=MASKED if processes.hidden else (),
        namespaces=tuple(name for name, wanted in namespaces.items() if wanted),
        environment=tuple(sorted(policy.environment.set.items())),
    )


def _folder(policy: Policy, path: str) -> MemoryFolder:
    limits = policy.limits
    shared = path == "/dev/shm"  # noqa: S108  a separate mount
    return MemoryFolder(
        target=path,
        size=limits.shared_memory if shared else limits.disk,
        inodes=limits.inodes,
        executable=policy.files.run_written and not shared,
    )
