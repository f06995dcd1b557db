"""Aliases of the types of profiles."""

from __future__ import annotations

ALIASES = {"shell": "local", "apptainer": "singularity", "bwrap": "bubblewrap"}
"""Other names for a type; no plugin may take them."""


def resolve_alias(type_name: str) -> str:
    """Return the type that ``type_name`` is an alias of, or ``type_name`` itself."""
    return ALIASES.get(type_name, type_name)
