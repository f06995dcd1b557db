"""Words before the colon of a target that name no type of profiles: aliases of types, and groups."""

from __future__ import annotations

ALIASES = {"shell": "local", "apptainer": "singularity", "bwrap": "bubblewrap"}
"""Other names for a type; no plugin may take them."""
GROUP = "group"
"""Begins the name of a group, as in ``group:web``; see ``hermes_exec.config.groups``."""


def resolve_alias(type_name: str) -> str:
    """Return the type that ``type_name`` is an alias of, or ``type_name`` itself."""
    return ALIASES.get(type_name, type_name)
