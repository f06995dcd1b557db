"""Labels of containers that this project creates: those of every backend, and digests of the configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_exec_backends._shared.labels import CREATED, LEASE, OWNER, digest, owner_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIGURATION = "hermes_exec.configuration"
"""A digest of each option that the container was created with, which hides the values."""
OURS = (OWNER, LEASE, CREATED, CONFIGURATION)


def container_labels(options: Mapping[str, Any], lease_s: float) -> dict[str, str]:
    """Return the labels of a new container."""
    return {**owner_labels(lease_s), CONFIGURATION: json.dumps(digests(options), separators=(",", ":"))}


def digests(options: Mapping[str, Any]) -> dict[str, str]:
    """Return a short digest of the value of each option."""
    return {name: digest(json.dumps(value, sort_keys=True, default=str)) for name, value in options.items()}


def differing(options: Mapping[str, Any], found: Mapping[str, str]) -> list[str]:
    """Return the names of the options that a container with the labels ``found`` was not created with."""
    try:
        theirs: Any = json.loads(found.get(CONFIGURATION, "{}"))
        ours = digests(options)
        return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    except (ValueError, TypeError, AttributeError):
        return sorted(options)
