"""The profile of this machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import Name


class LocalProfile(Profile, frozen=True):
    """This machine, as the user who runs hermes_exec."""

    type: Literal["local"] = "local"
    """`local`, or `shell`, which means the same."""
    inherit: Literal["clean", "tools", "all"] | Annotated[tuple[Name, ...], Field(strict=False)] | None = None
    """Variables of this process that commands inherit: `clean` (the user and the locale), `tools` (these, and those
    that find programs and caches), `all`, or a list of patterns such as `MY_*`. Those that look like secrets are
    withheld. When left out, `all` for `run` and `shell`, and `tools` elsewhere."""
