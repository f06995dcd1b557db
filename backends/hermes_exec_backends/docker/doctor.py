"""Checks of ``doctor`` for Docker: the SDK, the engine, and the limits that the engine can enforce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError, MissingExtra
from hermes_exec_backends._shared.doctor import check_package

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_backends.docker.engine import Engine

_OLDEST = (1, 40)
_LIMITS = {"memory": "MemoryLimit", "cpus": "CpuCfsQuota", "pids": "PidsLimit"}
_MODULES = ("seccomp", "apparmor", "selinux")


async def checks(engine: Engine) -> list[Check]:
    """Check the SDK and the engine."""
    try:
        await engine.open()
        info = await engine.call("docker", lambda client: client.info())
        return [check_package("docker", "docker"), *_check_engine(engine, info)]
    except HermesError as error:
        name = "sdk" if isinstance(error, MissingExtra) else "engine"
        return [Check(name, "missing", error.what.removeprefix("docker: "), error.remedy)]
    finally:
        await engine.close()


def _check_engine(engine: Engine, info: Mapping[str, Any]) -> list[Check]:
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    rootless = any("rootless" in option for option in options)
    kind = "rootless" if rootless else "root's"
    found = [Check("engine", "ok", f"{kind} {info.get('ServerVersion', 'engine')} at {engine.address}")]
    version = engine.version
    if tuple(map(int, version.split(".")[:2])) < _OLDEST:
        found.append(
            Check("api", "warning", f"version {version} is older than what is tested", "use Docker 20.10 or later")
        )
    else:
        found.append(Check("api", "ok", f"version {version}"))
    lacks = [name for name, key in _LIMITS.items() if not info.get(key) or info.get("CgroupDriver") == "none"]
    if lacks:
        remedy = "use cgroup v2 with systemd for a rootless engine" if rootless else "mount the cgroup controllers"
        found.append(Check("limits", "warning", f"cannot enforce {', '.join(lacks)}: they are refused", remedy))
    else:
        found.append(Check("limits", "ok", f"{', '.join(_LIMITS)} by cgroup v{info.get('CgroupVersion', '1')}"))
    has = [module for module in _MODULES if any(f"name={module}" in option for option in options)]
    found.append(Check("security", "ok" if "seccomp" in has else "warning", ", ".join(has) or "no security module"))
    storage = str(info.get("Driver", ""))
    if storage == "vfs":
        found.append(Check("storage", "warning", "vfs copies each image whole", "overlay2 on a file system that can"))
    else:
        found.append(Check("storage", "ok", storage))
    return found
