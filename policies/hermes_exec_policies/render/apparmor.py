"""Render a policy as an AppArmor profile (apparmor.d(5)) without includes, which a machine may lack.

Access that no rule grants is refused and logged. Explicit denials use ``audit``, so they are logged too, whatever a
later rule grants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_policies.folders import FOLDERS_ROOT
from hermes_exec_policies.render.bubblewrap import MASKED
from hermes_exec_policies.render.landlock import FOR_READING
from hermes_exec_policies.values import EVERY, FAMILIES

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

PREFIX = "hermes-exec-"
_KNOBS = ("/proc/sys/**", "/proc/sysrq-trigger", "/proc/irq/**", "/proc/bus/**", "/proc/fs/**", "/sys/**")
"""Files that change the machine if they are written."""
_NEVER = ("raw", "packet")
_OTHER_FAMILIES = ("inet", "inet6", "netlink", "packet", "vsock", "alg", "bluetooth", "can", "tipc", "xdp", "rds")


def profile_name(policy: Policy) -> str:
    """The name of the loaded profile."""
    return PREFIX + policy.name


def render(policy: Policy) -> str:
    """The profile, ending with a newline."""
    name = profile_name(policy)
    groups = (
        _files(policy), _network(policy, name), _capabilities(policy), _others(policy, name), _mounts(policy),
    )  # fmt: skip
    body = "\n\n".join("\n".join(f"  {line}" for line in lines) for lines in groups if lines)
    return (
        f"# Rendered from the policy {policy.name}; edit that, not this.\n"
        "abi <abi/3.0>,\n\n"
        f"profile {name} flags=(attach_disconnected,mediate_deleted) {{\n{body}\n}}\n"
    )


def _files(policy: Policy) -> list[str]:
    files = policy.files
    lines = ["/ r,"]
    if not files.hidden:
        lines += _below("/", "rmix")
    for path in files.run:
        lines += _below(path, "rmix")
    for path in files.read:
        lines += _below(path, "r")
    if files.root == "writable":
        lines += _below("/", "rwkl")
    if FOLDERS_ROOT in files.read:
        # The profile is loaded before a folder is granted; mount and Landlock decide which folders are writable.
        lines.append(f"{FOLDERS_ROOT}/*/** rwkl,")
    for path in policy.writable:
        lines += _below(path, "rwklmix" if files.run_written else "rwkl")
    lines += [f"{path}{{,/**}} {'r' if path in FOR_READING else 'rw'}," for path in files.devices]
    if files.root == "read-only":
        lines += [f"audit deny {path} wkl," for path in _KNOBS]
        lines += [f"audit deny {path}{{,/**}} rwklmx," for path in MASKED]
    return list(dict.fromkeys(lines))


def _below(path: str, rights: str) -> list[str]:
    top = path.rstrip("/")
    return [f"{top}{{,/,/**}} {rights},"] if top else [f"/ {rights},", f"/** {rights},"]


def _network(policy: Policy, name: str) -> list[str]:
    families = policy.network.sockets
    if not families:
        return ["network,", "unix,"]
    lines = [f"network {family}," for family in families if family in FAMILIES and family != "unix"]
    if "unix" in families:
        lines.append("network unix,")
        lines += (
            ["unix,"]
            if policy.processes.ipc == "shared"
            else [
                "unix (create, bind, listen, accept, getattr, setattr, getopt, setopt, shutdown),",
                f"unix (connect, send, receive) peer=(label={name}),",
            ]
        )
    if policy.network.access == "hosts":
        lines.append("/app/net/egress.sock rw,")
    lines += [f"audit deny network {family}," for family in _OTHER_FAMILIES if family not in families]
    return lines + [f"audit deny network {kind}," for kind in _NEVER if kind not in _OTHER_FAMILIES]


def _capabilities(policy: Policy) -> list[str]:
    held = policy.privileges.capabilities
    if EVERY in held:
        return ["capability,"]
    return [f"capability {each.lower()}," for each in held] or ["audit deny capability,"]


def _others(policy: Policy, name: str) -> list[str]:
    if not policy.processes.hidden:
        return ["signal,", "ptrace,"]
    lines = ["signal (receive),", f"signal (send) peer={name},"]
    if policy.processes.traced:
        return [*lines, f"ptrace peer={name},"]
    return [*lines, f"ptrace (read, readby) peer={name},", "audit deny ptrace (trace, tracedby),"]


def _mounts(policy: Policy) -> list[str]:
    if policy.privileges.namespaces:
        return ["mount,", "umount,", "pivot_root,"]
    return ["audit deny mount,", "audit deny remount,", "audit deny umount,", "audit deny pivot_root,"]
