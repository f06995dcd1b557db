"""Render a policy as options of Modal's and Daytona's sandboxes, which the vendor enforces unverified."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

_MIB = 1 << 20
_GIB = 1 << 30


def modal(policy: Policy) -> dict[str, Any]:
    """Arguments of ``modal.Sandbox.create``."""
    limits = policy.limits
    options: dict[str, Any] = {"block_network": policy.network.access != "open"}
    if limits.memory is not None:
        mebibytes = max(1, limits.memory // _MIB)
        options["memory"] = [mebibytes, mebibytes]
    if limits.cpus is not None:
        options["cpu"] = [limits.cpus, limits.cpus]
    if limits.time is not None:
        options["timeout"] = max(1, math.floor(limits.time))
    return options


def daytona(policy: Policy) -> dict[str, Any]:
    """Fields of the parameters of ``daytona``'s ``create``; its resources are whole processors and gibibytes."""
    limits = policy.limits
    resources = {
        "cpu": None if limits.cpus is None else math.ceil(limits.cpus),
        "memory": None if limits.memory is None else math.ceil(limits.memory / _GIB),
        "disk": None if limits.disk is None else math.ceil(limits.disk / _GIB),
    }
    return {
        "network_block_all": policy.network.access != "open",
        "resources": {name: value for name, value in resources.items() if value is not None},
        "ephemeral": policy.processes.end_together,
    }


def find_exceeding(place: str, policy: Policy) -> dict[str, float]:
    """The limits that are rendered higher than the policy's, because the vendor counts in larger units."""
    limits = policy.limits
    if place == "modal":
        asked = modal(policy)
        found = {
            "limits.memory": (asked.get("memory", [0])[0] * _MIB, limits.memory),
            "limits.time": (asked.get("timeout", 0), limits.time),
        }
    else:
        has = daytona(policy)["resources"]
        found = {
            "limits.memory": (has.get("memory", 0) * _GIB, limits.memory),
            "limits.disk": (has.get("disk", 0) * _GIB, limits.disk),
            "limits.cpus": (has.get("cpu", 0), limits.cpus),
        }
    return {rule: value for rule, (value, most) in found.items() if most is not None and value > most}
