"""The profile of a sandbox made by bubblewrap."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import Argument, Binds, Count, Name, Size


class BubblewrapProfile(Profile, frozen=True):
    """A sandbox on the system of the outer target: read-only, without a network, with an empty home and /tmp."""

    target_field: ClassVar[str | None] = "root"

    type: Literal["bubblewrap"] = "bubblewrap"
    """`bubblewrap`, or `bwrap`, which means the same."""
    policy: Name | None = None
    """The policy that it is under, on this machine; it decides on files, variables, network and user, in place of
    `root`, `network`, `space` and `user`."""
    policy_overrides: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The differences from that policy, in its own tables: `limits = { memory = "2 GiB" }`."""
    root: Argument | None = None
    """A folder with an unpacked system to use, read-only, instead of that of the outer target."""
    binds: Binds = ()
    """Folders of the outer target seen inside: `SOURCE:TARGET`, read-only unless `:rw` is added."""
    network: Literal["none", "host"] = "none"
    """`host` shares the network of the outer target, with all that listens there."""
    space: Size = 1 << 30
    """The largest size of each folder in memory: the home, /tmp and /dev/shm."""
    user: Count | None = None
    """The number of the user and group to be in there, where it is started by root; the same one when left out."""
    hostname: Name = "sandbox"
    """The host name seen inside."""
    program: Argument | None = None
    """The program to use there; `bwrap` when left out."""

    @model_validator(mode="after")
    def _one_decides(self) -> Self:
        for other in ("root", "network", "space", "user"):
            if self.policy and other in self.model_fields_set:
                raise ValueError(f"'policy' decides that, so {other!r} has no effect")
        if self.policy_overrides and not self.policy:
            raise ValueError("'policy_overrides' has no effect without a 'policy'")
        return self
