"""List the mechanisms that can enforce each rule in a kind of sandbox on this machine, and why others cannot.

The order is that of preference. A rule is enforced if at least one mechanism is available; security modules and the
system call filter enforce many rules a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.config.check import nearest
from hermes_exec.config.values import show_size
from hermes_exec.errors import UsageError
from hermes_exec_backends.sandbox.host import allow_namespaces
from hermes_exec_policies.render import clouds
from hermes_exec_policies.render.apparmor import profile_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hermes_exec_backends.sandbox.host import Host
    from hermes_exec_policies.model import Policy


@dataclass(frozen=True, slots=True)
class Means:
    """One mechanism that enforces a rule; ``lacking`` says why it is not available here."""

    mechanism: str
    lacking: str = ""
    remedy: str = ""
    declared: bool = False
    """Whether a vendor enforces it, where we cannot verify it."""


Table = dict[str, list[Means]]

_RLIMITS = ("cpu_time", "file_size", "open_files", "core", "locked_memory", "message_queues", "pending_signals")


def enforcers(place: str, policy: Policy, host: Host) -> Mapping[str, list[Means]]:
    """Map each rule to its enforcers in a kind of sandbox; nothing enforces a rule that is missing in the result.

    Raises:
        UsageError: no policy can be enforced in that kind; names the nearest known one.
    """
    if place not in PLACES:
        raise UsageError(
            f"no policy can be enforced in {place!r}; the nearest known kind is {nearest(place, PLACES)!r}",
            remedy=", ".join(PLACES),
        )
    return PLACES[place](policy, host)


def _filter(host: Host) -> Means:
    if host.seccomp:
        return Means("a filter of system calls (seccomp)")
    return Means(
        "a filter of system calls (seccomp)", "the kernel was built without it", "a kernel with CONFIG_SECCOMP_FILTER"
    )


def _landlock(host: Host, abi: int = 1) -> Means:
    if host.landlock_abi >= abi:
        return Means(f"Landlock (ABI {host.landlock_abi})")
    have = f"its ABI here is {host.landlock_abi}" if host.landlock_abi else "the kernel runs without it"
    return Means("Landlock", f"{have}, and this needs {abi}", "boot with lsm=landlock,… on Linux 5.13 or later")


def _apparmor(policy: Policy, host: Host) -> Means:
    name = profile_name(policy)
    if not host.apparmor:
        return Means("AppArmor", "the kernel runs without it", "boot with apparmor=1 security=apparmor")
    if name not in host.profiles:
        install = f"hermes-exec policy render {policy.name} --form apparmor | apparmor_parser -r"
        return Means("AppArmor", f"the profile {name} is not loaded, or we may not read the list", install)
    return Means(f"AppArmor (profile {name})")


def _group(by: str, limit: str) -> Means:
    remedy = "run as root, or let the service manager delegate a control group (Delegate=yes)"
    return Means(by) if by else Means("control group", f"none can be created here that limits {limit}", remedy)


def _namespace(host: Host, kind: str) -> Means:
    name = f"its own {kind} namespace"
    if host.root or not host.user_namespaces:
        return Means(name)
    return Means(name, host.user_namespaces, allow_namespaces(host))


def _by_kernel(policy: Policy, host: Host) -> Table:
    """Rules that a process can enforce on itself and its children, in any kind of sandbox."""
    calls, modules = _filter(host), [_landlock(host), _apparmor(policy, host)]
    table: Table = {
        "network.sockets": [calls],
        "privileges.none_gained": [Means("no_new_privs")],
        "privileges.namespaces": [calls],
        "processes.traced": [calls],
        "syscalls.filtered": [calls],
        "syscalls.native": [calls],
        "syscalls.writable_code": [calls],
        "syscalls.set_id_files": [calls],
        "environment.cleared": [Means("an environment of its own")],
        "lsm": modules,
    }
    return table


def _by_runner(host: Host) -> Table:
    """Limits that the process that starts a program enforces from outside."""
    watched = Means("a watchdog outside, a moment later")
    table: Table = {
        "limits.memory": [_group(host.groups.memory, "memory"), Means("the address space of each process"), watched],
        "limits.processes": [_group(host.groups.processes, "processes"), watched],
        "limits.cpus": [_group(host.groups.cpus, "processors")],
        "limits.time": [Means("a clock outside")],
        "limits.output": [Means("the reader outside")],
    }
    return table | {f"limits.{name}": [Means("a limit of each process")] for name in _RLIMITS}


def _unique(policy: Policy, host: Host) -> Means:
    name = f"a user of its own, from {policy.user.first}"
    return Means(name) if host.root else Means(name, "only root can take one", "run as root")


def _by_launcher(policy: Policy, host: Host) -> Table:
    """Rules that our launcher or bubblewrap enforces in a sandbox."""
    modules = [_landlock(host), _apparmor(policy, host)]
    memory = Means("folders in memory of a certain size")
    pids = _namespace(host, "process")
    return (
        _by_kernel(policy, host)
        | _by_runner(host)
        | {
            "files.write": [Means("mounts that cannot be written"), *modules],
            "files.hidden": [Means("a root folder of its own"), *modules],
            "files.run": [Means("mounts from which nothing is run (noexec)"), *modules],
            "files.devices": [Means("a /dev of its own"), *modules],
            "files.masked": [Means("mounts over what is not to be read"), _apparmor(policy, host)],
            "network.isolated": [_namespace(host, "network"), _filter(host), _landlock(host, 4)],
            "user.ordinary": [Means("an ordinary user")],
            "user.unique": [_unique(policy, host)],
            "privileges.capabilities": [Means("all capabilities are given up")],
            "processes.hidden": [pids, _landlock(host, 6)],
            "processes.ipc": [_namespace(host, "IPC"), _landlock(host, 6)],
            "processes.terminal": [Means("a session of its own, without a terminal")],
            "processes.end_together": [pids],
            "limits.disk": [memory],
            "limits.inodes": [memory],
            "limits.shared_memory": [memory],
        }
    )


def _bubblewrap(policy: Policy, host: Host) -> Table:
    table = _by_launcher(policy, host)
    if host.proc:
        table["files.masked"] = [Means("no /proc at all"), _apparmor(policy, host)]
    # An empty network namespace and the proxy enforce this together; neither does alone.
    without = _namespace(host, "network")
    table["network.hosts"] = [without if without.lacking else Means(f"{without.mechanism}, and a proxy outside")]
    if "bwrap" in host.versions:
        return table
    needed = Means("bubblewrap", "it is not installed", "apt-get install bubblewrap")
    return {rule: [needed] for rule in table}


def _docker(policy: Policy, host: Host) -> Table:
    table = _by_launcher(policy, host)
    if "docker engine" not in host.versions:
        missing = Means("the engine", "no Docker engine answers here", "systemctl start docker")
        return {rule: [missing] for rule in table}
    modules = [_landlock(host), _apparmor(policy, host)]
    option, group = Means("an option of the engine"), Means("the container's control group")
    pids = Means("its own process namespace")
    return table | {
        "files.write": [Means("a root folder that cannot be written"), *modules],
        "files.hidden": [Means("the image is all there is"), *modules],
        "files.devices": [Means("the engine's /dev and device group"), *modules],
        "files.masked": [option, _apparmor(policy, host)],
        "network.isolated": [Means("a network namespace with nothing in it"), _filter(host), _landlock(host, 4)],
        "user.ordinary": [option],
        "privileges.capabilities": [option],
        "processes.hidden": [pids, _landlock(host, 6)],
        "processes.ipc": [Means("its own IPC namespace"), _landlock(host, 6)],
        "processes.terminal": [option],
        "processes.end_together": [pids],
        "limits.memory": [group],
        "limits.processes": [group],
        "limits.cpus": [group],
    }


def _singularity(policy: Policy, host: Host) -> Table:
    table = _by_launcher(policy, host)
    if not {"apptainer", "singularity"} & host.versions.keys():
        missing = Means("Apptainer", "it is not installed", "https://apptainer.org/docs/admin/main/installation.html")
        return {rule: [missing] for rule in table}
    return table | {"files.hidden": [Means("the image is all there is"), *table["files.hidden"][1:]]}


def _by_vendor(place: str, *rules: str) -> Callable[[Policy, Host], Table]:
    said = Means("the vendor's declaration", declared=True)
    inherent = ("files.hidden", "processes.hidden", "processes.ipc", "environment.cleared")

    def table(policy: Policy, _host: Host) -> Table:
        more = {
            rule: Means("the vendor", f"its minimum is {_amount(rule, value)}")
            for rule, value in clouds.beyond(place, policy).items()
        }
        return {rule: [more.get(rule, said)] for rule in (*inherent, *rules)}

    return table


def _amount(rule: str, value: float) -> str:
    return f"{value:g}" if rule in {"limits.cpus", "limits.time"} else show_size(int(value))


PLACES: dict[str, Callable[[Policy, Host], Table]] = {
    "bubblewrap": _bubblewrap,
    "docker": _docker,
    "singularity": _singularity,
    "modal": _by_vendor("modal", "network.isolated", "limits.memory", "limits.cpus", "limits.time"),
    "daytona": _by_vendor("daytona", "network.isolated", "limits.memory", "limits.cpus", "limits.disk"),
}
"""The kinds of sandbox that can enforce policies."""
