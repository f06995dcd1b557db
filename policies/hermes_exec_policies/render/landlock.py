"""Render a policy as a Landlock ruleset for the newest known ABI; an older kernel leaves out unknown rights.

Rules are unions: the rights of a folder apply to everything below it, so no executable folder is above a writable one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

NEWEST_ABI = 7
BRIDGE = 3128
"""The loopback port of the proxy's bridge in a sandbox with granted hosts."""
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK = (1 << bit for bit in range(6, 12))
MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(12, 16))
ALL_FILES = (1 << 16) - 1
BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2

READING = READ_FILE | READ_DIR
RUNNING = READING | EXECUTE
WRITING = ALL_FILES & ~(EXECUTE | MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)
DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
FOR_READING = frozenset({"/dev/zero"})
"""Devices that are written only to allocate uncounted memory."""
_SINCE = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
"""The ABI version that added each later file right."""


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The handled rights, and the rules that grant some of them."""

    handled_files: int
    paths: tuple[tuple[str, int], ...]
    handled_network: int
    scoped: int
    ports: tuple[tuple[int, int], ...] = ()

    def at(self, abi: int) -> Ruleset:
        """The part of the ruleset that a kernel with this ABI version supports."""
        lacking = sum(right for since, right in _SINCE.items() if abi < since)
        return Ruleset(
            self.handled_files & ~lacking,
            tuple((path, access & ~lacking) for path, access in self.paths),
            self.handled_network if abi >= 4 else 0,
            self.scoped if abi >= 6 else 0,
            self.ports if abi >= 4 else (),
        )


def ruleset(policy: Policy) -> Ruleset | None:
    """Build the ruleset of a policy; None if the policy restricts nothing that Landlock handles."""
    files, paths = policy.files, dict[str, int]()
    confines_files = files.root == "read-only" or files.hidden
    if confines_files:
        grants = {RUNNING: files.run, READING: files.read, DEVICE: files.devices}
        for right, where in grants.items():
            for path in where:
                paths[path] = paths.get(path, 0) | (READ_FILE if path in FOR_READING else right)
        if not files.hidden:
            paths["/"] = RUNNING
        for path in policy.writable:
            paths[path] = paths.get(path, 0) | WRITING | (EXECUTE if files.run_written else 0)
    # Rules name single ports. A namespace with nothing but a loopback interface isolates sockets of any port.
    network = 0 if policy.network.access == "open" or policy.has_own_loopback else BIND_TCP | CONNECT_TCP
    # The loopback port of the bridge to the outside proxy.
    ports = ((BRIDGE, BIND_TCP | CONNECT_TCP),) if policy.network.access == "hosts" else ()
    scoped = (SCOPE_SIGNALS if policy.processes.hidden else 0) | (
        SCOPE_ABSTRACT_SOCKETS if policy.processes.ipc == "private" else 0
    )
    if not (confines_files or network or scoped):
        return None
    return Ruleset(ALL_FILES if confines_files else 0, tuple(sorted(paths.items())), network, scoped, ports)
