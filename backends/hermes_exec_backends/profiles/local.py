"""The profile of this machine."""

from __future__ import annotations

from typing import Literal

from hermes_exec.config.profile import Profile


class LocalProfile(Profile, frozen=True):
    """This machine, as the user who runs hermes_exec; it needs no settings."""

    type: Literal["local"] = "local"
    """`local`, or `shell`, which means the same."""
