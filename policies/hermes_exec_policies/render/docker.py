"""Render a policy as options of a Docker container, in the form of the engine's API.

The caller has to choose a unique user, and to check the label of the first process (``/proc/self/attr/current``),
because an engine accepts the name of an AppArmor profile that does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec_policies.render.apparmor import profile_name
from hermes_exec_policies.render.bubblewrap import MASKED
from hermes_exec_policies.render.rlimits import rlimits
from hermes_exec_policies.values import EVERY

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

_NOT_BY_ENGINES = {"as"}
"""Process limits that engines do not support."""
_MASKED = (*MASKED, "/proc/timer_stats", "/sys")
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def render(policy: Policy, *, seccomp: str, apparmor: bool, uid: int | None = None) -> dict[str, Any]:
    """``Config`` and ``HostConfig`` of a container; ``seccomp`` is the JSON document, as the API expects it.

    ``apparmor`` is whether the engine's machine has loaded the profile.
    """
    user = policy.user.first if uid is None else uid
    config: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in sorted(policy.environment.set.items())],
        "Tty": policy.processes.terminal,
        "OpenStdin": False,
        "NetworkDisabled": policy.network.access != "open",
    }
    if policy.user.ordinary:
        config["User"] = f"{user}:{user}"
    return {"Config": config, "HostConfig": _host(policy, seccomp=seccomp, apparmor=apparmor, uid=user)}


def _host(policy: Policy, *, seccomp: str, apparmor: bool, uid: int) -> dict[str, Any]:
    limits, files = policy.limits, policy.files
    security = [f"seccomp={seccomp or 'unconfined'}"]
    if policy.privileges.none_gained:
        security.insert(0, "no-new-privileges:true")
    if apparmor:
        security.append(f"apparmor={profile_name(policy) if files.root == 'read-only' else 'unconfined'}")
    host: dict[str, Any] = {
        "NetworkMode": "default" if policy.network.access == "open" else "none",
        "ReadonlyRootfs": files.root == "read-only",
        "SecurityOpt": security,
        "CapDrop": [] if EVERY in policy.privileges.capabilities else ["ALL"],
        "CapAdd": list(policy.privileges.capabilities),
        "IpcMode": "private" if policy.processes.ipc == "private" else "shareable",
        "PidMode": "",
        "Privileged": False,
        "Init": policy.processes.end_together,
        "AutoRemove": False,
        "LogConfig": {"Type": "none", "Config": {}},
        "Tmpfs": {path: _tmpfs(policy, uid) for path in policy.writable if path != "/dev/shm"},  # noqa: S108  a mount
        "Ulimits": [
            {"Name": name, "Soft": soft, "Hard": hard}
            for name, soft, hard in rlimits(policy)
            if name not in _NOT_BY_ENGINES
        ],
    }
    if files.root == "read-only":
        host |= {"MaskedPaths": list(_MASKED), "ReadonlyPaths": list(_READ_ONLY)}
    bounds = {
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "PidsLimit": limits.processes,
        "NanoCpus": None if limits.cpus is None else max(1, round(limits.cpus * 1e9)),  # 0 sets no limit
        "ShmSize": limits.shared_memory,
    }
    return host | {name: value for name, value in bounds.items() if value is not None}


def _tmpfs(policy: Policy, uid: int) -> str:
    limits = policy.limits
    options = ["rw", "nosuid", "nodev", "exec" if policy.files.run_written else "noexec"]
    options += [f"size={limits.disk}"] if limits.disk is not None else []
    options += [f"nr_inodes={limits.inodes}"] if limits.inodes is not None else []
    return ",".join([*options, "mode=0700", f"uid={uid}", f"gid={uid}"])
