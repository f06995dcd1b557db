"""List the mechanisms that can enforce each rule in a kind of sandbox on this machine, and why others cannot.

The order is that of preference. A rule is enforced if at least one mechanism is available; security modules and the
system call filter enforce many rules a second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.config.check import nearest_name
from hermes_exec.config.values import format_size
from hermes_exec.errors import UsageError
from hermes_exec_backends.sandbox.host import allow_namespaces
from hermes_exec_policies.render import clouds
from hermes_exec_policies.render.apparmor import profile_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hermes_exec_backends.sandbox.host import Machine
    from hermes_exec_policies.model import Policy


@dataclass(frozen=True, slots=True)
class Enforcer:
    """One mechanism that enforces a rule; ``lacking`` says why it is not available here."""

    mechanism: str
    lacking: str = ""
    remedy: str = ""
    declared: bool = False
    """Whether a vendor enforces it, where we cannot verify it."""


Table = dict[str, list[Enforcer]]

_RLIMITS = ("cpu_time", "file_size", "open_files", "core", "locked_memory", "message_queues", "pending_signals")


def list_enforcers(place: str, policy: Policy, host: Machine) -> Mapping[str, list[Enforcer]]:
    """Map each rule to its enforcers in a kind of sandbox; nothing enforces a rule that is missing in the result.

    Raises:
        UsageError: no policy can be enforced in that kind; names the nearest known one.
    """
    if place not in SANDBOX_KINDS:
        raise UsageError(
            f"no policy can be enforced in {place!r}; the nearest known kind is {nearest_name(place, SANDBOX_KINDS)!r}",
            remedy=", ".join(SANDBOX_KINDS),
        )
    return SANDBOX_KINDS[place](policy, host)


def _filter(host: Machine) -> Enforcer:
    if host.seccomp:
        return Enforcer("a filter of system calls (seccomp)")
    return Enforcer(
        "a filter of system calls (seccomp)", "the kernel was built without it", "a kernel with CONFIG_SECCOMP_FILTER"
    )


def _landlock(host: Machine, abi: int = 1) -> Enforcer:
    if host.landlock_abi >= abi:
        return Enforcer(f"Landlock (ABI {host.landlock_abi})")
    have = f"its ABI here is {host.landlock_abi}" if host.landlock_abi else "the kernel runs without it"
    return Enforcer("Landlock", f"{have}, and this needs {abi}", "boot with lsm=landlock,… on Linux 5.13 or later")


def _apparmor(policy: Policy, host: Machine) -> Enforcer:
    name = profile_name(policy)
    if not host.apparmor:
        return Enforcer("AppArmor", "the kernel runs without it", "boot with apparmor=1 security=apparmor")
    if name not in host.profiles:
        install = f"hermes-exec policy render {policy.name} --form apparmor | apparmor_parser -r"
        return Enforcer("AppArmor", f"the profile {name} is not loaded, or we may not read the list", install)
    return Enforcer(f"AppArmor (profile {name})")


def _group(by: str, limit: str) -> Enforcer:
    remedy = "run as root, or let the service manager delegate a control group (Delegate=yes)"
    return Enforcer(by) if by else Enforcer("control group", f"none can be created here that limits {limit}", remedy)


def _namespace(host: Machine, kind: str) -> Enforcer:
    name = f"its own {kind} namespace"
    if host.root or not host.user_namespaces:
        return Enforcer(name)
    return Enforcer(name, host.user_namespaces, allow_namespaces(host))


def _by_kernel(policy: Policy, host: Machine) -> Table:
    """Rules that a process can enforce on itself and its children, in any kind of sandbox."""
    calls, modules = _filter(host), [_landlock(host), _apparmor(policy, host)]
    table: Table = {
        "network.sockets": [calls],
        "privileges.none_gained": [Enforcer("no_new_privs")],
        "privileges.namespaces": [calls],
        "processes.traced": [calls],
        "syscalls.filtered": [calls],
        "syscalls.native": [calls],
        "syscalls.writable_code": [calls],
        "syscalls.set_id_files": [calls],
        "environment.cleared": [Enforcer("an environment of its own")],
        "lsm": modules,
    }
    return table


def _by_runner(host: Machine) -> Table:
    """Limits that the process that starts a program enforces from outside."""
    watched = Enforcer("a watchdog outside, a moment later")
    table: Table = {
        "limits.memory": [_group(host.groups.memory, "memory"), Enforcer("the address space of each process"), watched],
        "limits.processes": [_group(host.groups.processes, "processes"), watched],
        "limits.cpus": [_group(host.groups.cpus, "processors")],
        "limits.time": [Enforcer("a clock outside")],
        "limits.output": [Enforcer("the reader outside")],
    }
    return table | {f"limits.{name}": [Enforcer("a limit of each process")] for name in _RLIMITS}


def _unique(policy: Policy, host: Machine) -> Enforcer:
    name = f"a user of its own, from {policy.user.first}"
    return Enforcer(name) if host.root else Enforcer(name, "only root can take one", "run as root")


def _by_refused_sockets(policy: Policy, host: Machine) -> list[Enforcer]:
    """What isolates a policy from the network besides a namespace: nothing if it allows internet sockets."""
    return [] if policy.has_own_loopback else [_filter(host), _landlock(host, 4)]


def _by_launcher(policy: Policy, host: Machine) -> Table:
    """Rules that our launcher or bubblewrap enforces in a sandbox."""
    modules = [_landlock(host), _apparmor(policy, host)]
    memory = Enforcer("folders in memory of a certain size")
    pids = _namespace(host, "process")
    return (
        _by_kernel(policy, host)
        | _by_runner(host)
        | {
            "files.write": [Enforcer("mounts that cannot be written"), *modules],
            "files.hidden": [Enforcer("a root folder of its own"), *modules],
            "files.run": [Enforcer("mounts from which nothing is run (noexec)"), *modules],
            "files.devices": [Enforcer("a /dev of its own"), *modules],
            "files.masked": [Enforcer("mounts over what is not to be read"), _apparmor(policy, host)],
            "network.isolated": [_namespace(host, "network"), *_by_refused_sockets(policy, host)],
            "user.ordinary": [Enforcer("an ordinary user")],
            "user.unique": [_unique(policy, host)],
            "privileges.capabilities": [Enforcer("all capabilities are given up")],
            "processes.hidden": [pids, _landlock(host, 6)],
            "processes.ipc": [_namespace(host, "IPC"), _landlock(host, 6)],
            "processes.terminal": [Enforcer("a session of its own, without a terminal")],
            "processes.end_together": [pids],
            "limits.disk": [memory],
            "limits.inodes": [memory],
            "limits.shared_memory": [memory],
        }
    )


def _bubblewrap(policy: Policy, host: Machine) -> Table:
    table = _by_launcher(policy, host)
    if host.proc:
        table["files.masked"] = [Enforcer("no /proc at all"), _apparmor(policy, host)]
    # An empty network namespace and the proxy enforce this together; neither does alone.
    without = _namespace(host, "network")
    table["network.hosts"] = [without if without.lacking else Enforcer(f"{without.mechanism}, and a proxy outside")]
    if "bwrap" in host.versions:
        return table
    needed = Enforcer("bubblewrap", "it is not installed", "apt-get install bubblewrap")
    return {rule: [needed] for rule in table}


def _docker(policy: Policy, host: Machine) -> Table:
    table = _by_launcher(policy, host)
    if "docker engine" not in host.versions:
        missing = Enforcer("the engine", "no Docker engine answers here", "systemctl start docker")
        return {rule: [missing] for rule in table}
    modules = [_landlock(host), _apparmor(policy, host)]
    option, group = Enforcer("an option of the engine"), Enforcer("the container's control group")
    pids = Enforcer("its own process namespace")
    return table | {
        "files.write": [Enforcer("a root folder that cannot be written"), *modules],
        "files.hidden": [Enforcer("the image is all there is"), *modules],
        "files.devices": [Enforcer("the engine's /dev and device group"), *modules],
        "files.masked": [option, _apparmor(policy, host)],
        "network.isolated": [Enforcer("a network namespace with nothing in it"), *_by_refused_sockets(policy, host)],
        "user.ordinary": [option],
        "privileges.capabilities": [option],
        "processes.hidden": [pids, _landlock(host, 6)],
        "processes.ipc": [Enforcer("its own IPC namespace"), _landlock(host, 6)],
        "processes.terminal": [option],
        "processes.end_together": [pids],
        "limits.memory": [group],
        "limits.processes": [group],
        "limits.cpus": [group],
    }


def _singularity(policy: Policy, host: Machine) -> Table:
    table = _by_launcher(policy, host)
    if not {"apptainer", "singularity"} & host.versions.keys():
        missing = Enforcer(
            "Apptainer", "it is not installed", "https://apptainer.org/docs/admin/main/installation.html"
        )
        return {rule: [missing] for rule in table}
    return table | {"files.hidden": [Enforcer("the image is all there is"), *table["files.hidden"][1:]]}


def _by_vendor(place: str, *rules: str) -> Callable[[Policy, Machine], Table]:
    said = Enforcer("the vendor's declaration", declared=True)
    inherent = ("files.hidden", "processes.hidden", "processes.ipc", "environment.cleared")

    def table(policy: Policy, _host: Machine) -> Table:
        more = {
            rule: Enforcer("the vendor", f"its minimum is {_amount(rule, value)}")
            for rule, value in clouds.find_exceeding(place, policy).items()
        }
        return {rule: [more.get(rule, said)] for rule in (*inherent, *rules)}

    return table


def _amount(rule: str, value: float) -> str:
    return f"{value:g}" if rule in {"limits.cpus", "limits.time"} else format_size(int(value))


SANDBOX_KINDS: dict[str, Callable[[Policy, Machine], Table]] = {
    "bubblewrap": _bubblewrap,
    "docker": _docker,
    "singularity": _singularity,
    "modal": _by_vendor("modal", "network.isolated", "limits.memory", "limits.cpus", "limits.time"),
    "daytona": _by_vendor("daytona", "network.isolated", "limits.memory", "limits.cpus", "limits.disk"),
}
"""The kinds of sandbox that can enforce policies."""
