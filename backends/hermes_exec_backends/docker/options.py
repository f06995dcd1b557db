"""Conversion of a profile to the engine's creation parameters, and checks that the engine can enforce them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ConfigError, Unsupported
from hermes_exec.terminal.encoding import parse_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hermes_exec_backends.profiles.docker import DockerProfile

_CREATION = (
    "platform", "labels", "user", "hostname", "init", "runtime", "network", "binds", "volumes", "tmpfs", "read_only",
    "security_opt", "cap_add", "cap_drop", "cpus", "memory", "pids", "shm", "ulimits", "gpus",
)  # fmt: skip
"""The fields of a profile that are fixed once a container is created."""
_SECCOMP_WORDS = {"unconfined", "builtin"}
SYSTEM_PATHS = "systempaths=unconfined"
"""An option of the docker program that the engine does not know: it unmasks all of /proc and /sys."""


def get_fixed_options(profile: DockerProfile, image: str, security: list[str]) -> dict[str, Any]:
    """Return the options that a container must have been created with to be reused; ``image`` is the image's ID."""
    return {**profile.model_dump(include=set(_CREATION)), "image": image, "security_opt": security}


def arguments(profile: DockerProfile, security: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the SDK's arguments for the container, and those for its host configuration.

    Raises:
        ConfigError: a bind's source is not an absolute path.
    """
    from docker.types import Ulimit

    container: dict[str, Any] = {
        "hostname": profile.hostname,
        "user": profile.user,
        "platform": profile.platform,
        "healthcheck": {"test": ["NONE"]},  # an image's own check is for its own program, which is not started
        "stop_signal": "SIGTERM",
    }
    host: dict[str, Any] = {
        "auto_remove": not profile.reuse,
        "init": profile.init,
        "runtime": profile.runtime,
        "network_mode": profile.network,
        "mounts": list(_mounts(profile)),
        "tmpfs": {path: f"size={size},mode=1777" for path, size in profile.tmpfs.items()},
        "read_only": profile.read_only,
        "security_opt": [option for option in security if option != SYSTEM_PATHS],
        "cap_add": list(profile.cap_add),
        "cap_drop": list(profile.cap_drop),
        "nano_cpus": round(profile.cpus * 1e9) if profile.cpus else None,
        "mem_limit": profile.memory,
        "memswap_limit": profile.memory,
        "pids_limit": profile.pids,
        "shm_size": profile.shm,
        "ulimits": [Ulimit(name=name, soft=value, hard=value) for name, value in profile.ulimits.items()],
        "device_requests": _gpus(profile.gpus),
    }
    return container, {name: value for name, value in host.items() if value not in (None, [], {})}


def _mounts(profile: DockerProfile) -> Iterator[Any]:
    from docker.types import Mount

    for bind in profile.binds:
        if not bind.source.startswith("/"):
            raise ConfigError(
                f"docker: the source of a bind at {bind.target!r} is not an absolute path",
                remedy="a folder of the engine's host as /FOLDER:/TARGET, a named volume under 'volumes'",
            )
        # As a mount and not as a bind: the engine then refuses a missing source instead of creating it as root.
        yield Mount(bind.target, bind.source, type="bind", read_only=not bind.writable)
    for target, name in profile.volumes.items():
        yield Mount(target, name, type="volume")


def _gpus(wanted: str | None) -> list[Any] | None:
    from docker.types import DeviceRequest

    if wanted is None or wanted == "0":
        return None
    count = -1 if wanted == "all" else parse_number(wanted)
    if count is not None:
        return [DeviceRequest(count=count, capabilities=[["gpu"]])]
    return [DeviceRequest(device_ids=wanted.split(","), capabilities=[["gpu"]])]


def security_options(profile: DockerProfile) -> list[str]:
    """Return the security options in the engine's format: the profile named by ``seccomp=FILE`` is read.

    Raises:
        ConfigError: the file cannot be read, or is not valid JSON.
    """
    return [_with_profile(option) for option in profile.security_opt]


def _with_profile(option: str) -> str:
    name, _, value = option.partition("=")
    if name != "seccomp" or value in _SECCOMP_WORDS or value.lstrip().startswith("{"):
        return option
    try:
        return f"seccomp={json.dumps(json.loads(Path(value).expanduser().read_bytes()))}"
    except OSError as error:
        raise ConfigError(f"docker: the seccomp profile {value} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"docker: the seccomp profile {value} is not JSON: {error}") from error


def needs_enforcement(profile: DockerProfile) -> bool:
    """Return whether the profile needs a limit that an engine would silently ignore."""
    return bool(profile.security_opt or profile.cpus or profile.memory or profile.pids)


def check_enforced(profile: DockerProfile, info: Mapping[str, Any]) -> None:
    """Refuse options that this engine accepts and does not enforce; ``info`` is its own report.

    Raises:
        Unsupported: names the option, and the missing feature.
    """
    security = {part.partition("=")[2] for entry in info.get("SecurityOptions") or () for part in entry.split(",")}
    wanted = {
        name: value
        for name, _, value in (option.partition("=") for option in profile.security_opt)
        if value not in {"unconfined", "disable"}
    }
    for option, module in (("apparmor", "apparmor"), ("seccomp", "seccomp"), ("label", "selinux")):
        if option in wanted and module not in security:
            raise Unsupported(
                f"docker: security_opt {option}: this engine's host has no {module}, so it would be ignored",
                remedy=f"leave it out, or use a host with {module}",
            )
    limits = {"memory": "MemoryLimit", "pids": "PidsLimit", "cpus": "CpuCfsQuota"}
    without = info.get("CgroupDriver") == "none"
    for field, known in limits.items():
        if getattr(profile, field) and (without or not info.get(known)):
            raise Unsupported(
                f"docker: {field}: this engine cannot enforce it (no cgroup controller), so it would be ignored",
                remedy="use an engine with cgroups (rootless ones need cgroup v2 and systemd), or leave it out",
            )
