"""Conversion of a profile to the SDK's creation parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ConfigError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_backends._shared import cost_guard, labels
from hermes_exec_backends._shared.prices import DAYTONA

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.daytona import DaytonaProfile

IMAGE = "python:3.11-slim"
"""The base image if a profile names none."""
_GIB = 1 << 30
_MINUTE_S = 60.0
_SHORTEST_MIN = 3
"""The shortest interval that one request a minute reliably renews."""
NEVER = -1
_DISK = 3.0
"""GiB of a sandbox for which the profile states none; it has one CPU and 1 GiB of memory then."""


def gpus(profile: DaytonaProfile) -> tuple[int, list[str]]:
    """Return the number of GPUs, and their kinds, the best first; an empty list allows any kind."""
    text = profile.gpu
    if text is None or text == "0":
        return 0, []
    if (number := parse_number(text)) is not None:
        return number, []
    if text == "all":
        raise ConfigError(
            "daytona: gpu = 'all': a sandbox has no GPUs by itself", remedy="a kind, such as H100 or H100:2"
        )
    kinds: list[str] = []
    count = 1
    for each in text.split(","):
        kind, _, wanted = each.partition(":")
        number = parse_number(wanted or "1", 1)
        if number is None:
            raise ConfigError(f"daytona: gpu = {text!r}: a count is a number", remedy="KIND:COUNT, such as H100:2")
        kinds.append(kind.upper())
        count = max(count, number)
    return count, kinds


def estimate_price(profile: DaytonaProfile) -> float | None:
    """Return the published price of a sandbox in US dollars an hour; None if its size or its GPU is not known."""
    count, kinds = gpus(profile)
    if profile.snapshot or (count and len(kinds) != 1):
        return None
    requested = size(profile)
    return DAYTONA.estimate(
        cpus=requested.get("cpu", 1),
        memory=requested.get("memory", 1),
        disk=requested.get("disk", _DISK),
        gpus=[(kind, float(count)) for kind in kinds],
    )


def size(profile: DaytonaProfile) -> dict[str, Any]:
    """Return the requested resources, in the vendor's units."""
    count, kinds = gpus(profile)
    asked = {
        "cpu": profile.cpu,
        "memory": None if profile.memory is None else math.ceil(profile.memory / _GIB),
        "disk": None if profile.disk is None else math.ceil(profile.disk / _GIB),
        "gpu": count or None,
        "gpu_type": kinds or None,
    }
    return {name: value for name, value in asked.items() if value is not None}


def intervals(profile: DaytonaProfile, lease_s: float) -> dict[str, int]:
    """Return the vendor's intervals: it stops the sandbox after one lease without activity, and then deletes it."""
    lease_min = max(_SHORTEST_MIN, math.ceil(lease_s / _MINUTE_S))
    stop, archive, delete = profile.auto_stop_min, profile.auto_archive_min, profile.auto_delete_min
    return {
        "auto_stop_interval": lease_min if stop is None else stop,
        "auto_archive_interval": lease_min if archive is None else archive,
        "auto_delete_interval": 0 if delete is None else delete,
    }


def parameters(profile: DaytonaProfile, name: str, lease_s: float) -> Any:
    """Return the arguments of ``AsyncDaytona.create``.

    Raises:
        ConfigError: options that contradict each other, or that the cost guard refuses; nothing was requested.
    """
    from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, Resources, VolumeMount

    cost_guard.check_profile(profile, gpus(profile)[1])
    longest_s = cost_guard.longest_s(profile, estimate_price(profile))
    asked: dict[str, Any] = {
        "name": name,
        "labels": labels.sandbox_labels(profile, lease_s),
        "volumes": [VolumeMount(volume_id=each, mount_path=path) for path, each in profile.volumes.items()] or None,
        "os_user": profile.user,
        "target": profile.region,
        "network_block_all": True if profile.network == "blocked" else None,
        "network_allow_list": ",".join(profile.allow) or None,
        "ttl_minutes": None if longest_s is None else max(1, math.floor(longest_s / _MINUTE_S)),
        **intervals(profile, lease_s),
    }
    resources = size(profile)
    built = _image(profile, needed=bool(resources))
    if built is None:
        if resources:
            raise ConfigError(
                f"daytona: a snapshot has its own {', '.join(resources)}", remedy="an image instead of the snapshot"
            )
        return CreateSandboxFromSnapshotParams(snapshot=profile.snapshot, **asked)
    return CreateSandboxFromImageParams(image=built, resources=_resources(Resources, resources), **asked)


def _resources(model: Any, asked: dict[str, Any]) -> Any:
    from daytona import GpuType

    if not asked:
        return None
    known = [each.value for each in GpuType if not each.name.startswith("UNKNOWN")]
    for kind in asked.get("gpu_type", ()):
        if kind not in known:
            raise ConfigError(f"daytona: there is no GPU {kind!r}", remedy=f"one of {', '.join(known)}")
    kinds = [GpuType(kind) for kind in asked.get("gpu_type", ())]
    return model(**{**asked, **({"gpu_type": kinds} if kinds else {})})


def _image(profile: DaytonaProfile, *, needed: bool) -> Any:
    """Return the image to build, or its name; None is a snapshot, the vendor's own if the profile names none."""
    from daytona import Image

    adds = bool(profile.packages or profile.requirements)
    if profile.snapshot or not (profile.image or profile.dockerfile or adds or needed):
        if adds:
            raise ConfigError(
                "daytona: 'packages' and 'requirements' cannot be built into a snapshot",
                remedy="an image instead of it",
            )
        return None
    if profile.dockerfile is not None:
        image = Image.from_dockerfile(profile.dockerfile)
    elif not adds:
        return profile.image or IMAGE
    else:
        image = Image.base(profile.image or IMAGE)
    if profile.packages:
        words = " ".join(profile.packages)
        image = image.run_commands(
            f"apt-get update && apt-get install -y --no-install-recommends {words} && rm -rf /var/lib/apt/lists/*"
        )
    return image.pip_install(*profile.requirements) if profile.requirements else image
