"""Translation of a launch specification to an engine's API."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_backends.sandbox.spec import Confinement, Limits

READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
NAMESPACES = frozenset({"pid", "net", "ipc", "uts", "cgroup"})
"""The namespaces that an engine creates; the user namespace is the machine's."""
_NOT_BY_ENGINES = {"as"}
"""Limits of processes that engines do not support; the launcher sets them."""


def check(confinement: Confinement, argv: Sequence[str]) -> None:
    """Check that an engine can create such a sandbox.

    Raises:
        UsageError: the specification is invalid for a container.
        Unsupported: no engine supports a required feature.
    """
    if not argv or not argv[0].startswith("/"):
        raise UsageError("the program in a sandbox is named by its absolute path inside")
    if confinement.links or confinement.files:
        raise UsageError("docker: links and files are those of the image")
    if not confinement.namespaces <= NAMESPACES:
        raise UsageError(f"docker: an engine makes the namespaces {', '.join(sorted(NAMESPACES))}, and no others")
    if confinement.uid is None:
        raise UsageError("docker: a sandbox needs a user that is not root", remedy="a specification with a uid")
    if os.geteuid() not in {0, confinement.uid}:
        raise Unsupported(
            "docker: only root can look at the processes of other users from outside",
            remedy="a sandbox of your own user, or root",
        )
    if any(bind.writable and not bind.executable for bind in confinement.binds) and confinement.landlock is None:
        raise Unsupported("docker: an engine binds no folder from which nothing can be started", remedy="Landlock")


def options(confinement: Confinement, limits: Limits) -> dict[str, Any]:
    """Return ``Config`` with ``HostConfig`` of the container."""
    user = f"{confinement.uid}:{confinement.uid if confinement.gid is None else confinement.gid}"
    return {
        "User": user,
        "Env": [f"{name}={value}" for name, value in confinement.env],
        "Hostname": confinement.hostname,
        "WorkingDir": "/",
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": "net" in confinement.namespaces,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host(confinement, limits),
    }


def _host(confinement: Confinement, limits: Limits) -> dict[str, Any]:
    own = confinement.namespaces
    security = ["no-new-privileges:true", f"seccomp={confinement.filter_document or 'unconfined'}"]
    if confinement.apparmor:
        security.append(f"apparmor={confinement.apparmor}")
    host: dict[str, Any] = {
        "NetworkMode": "none" if "net" in own else "host",
        "PidMode": "" if "pid" in own else "host",
        "IpcMode": "private" if "ipc" in own else "host",
        "UTSMode": "" if "uts" in own else "host",
        "CgroupnsMode": "private" if "cgroup" in own else "host",
        "ReadonlyRootfs": True,
        "SecurityOpt": security,
        "CapDrop": ["ALL"],
        "Privileged": False,
        "Init": False,
        "AutoRemove": False,
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": ""},
        "MaskedPaths": list(confinement.masked),
        "ReadonlyPaths": list(READ_ONLY),
        "Tmpfs": {
            folder.target: f"rw,nosuid,nodev,{'exec' if folder.executable else 'noexec'},size={folder.size},"
            f"nr_inodes={folder.inodes},mode={folder.mode:04o},uid={confinement.uid},gid={confinement.uid}"
            for folder in confinement.tmpfs
        },
        "Mounts": [
            {"Type": "bind", "Source": bind.source, "Target": bind.target, "ReadOnly": not bind.writable}
            for bind in confinement.binds
        ],
        "Ulimits": [
            {"Name": name, "Soft": soft, "Hard": hard}
            for name, soft, hard in confinement.rlimits
            if name not in _NOT_BY_ENGINES
        ],
    }
    bounds = {
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "PidsLimit": None if limits.processes is None else limits.processes + 1,  # the launcher is one as well
        "NanoCpus": None if limits.cpus is None else round(limits.cpus * 1e9),
    }
    return host | {name: value for name, value in bounds.items() if value is not None}
