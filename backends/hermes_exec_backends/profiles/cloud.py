"""The common options of cloud profiles: tags to find sandboxes by, and a guard against cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import Amount, Count, LocalPath, Name, Names, Table, Words


class CloudProfile(Profile, frozen=True):
    """A sandbox that is billed by the second."""

    image: Name | None = None
    """The image of a registry to start; the vendor's own small one with Python when left out."""
    dockerfile: LocalPath | None = None
    """A Dockerfile to build the image from."""
    packages: Names = ()
    """Debian packages to build into the image."""
    requirements: Words = ()
    """Python requirements to build into the image."""
    name: Name | None = None
    """The sandbox's name: opening it again finds the same one."""
    tags: Table = Field(default_factory=dict[str, str])
    """Tags of the sandbox, in addition to ours."""
    volumes: Table = Field(default_factory=dict[str, str])
    """The vendor's volumes: the folder inside = the volume's name."""
    network: Literal["open", "blocked"] = "open"
    """Whether the sandbox has a network."""
    allow: Names = ()
    """Address ranges that a sandbox can reach, such as `10.0.0.0/8`; all of them when empty."""

    hourly_cost: Amount | None = None
    """The price of one such sandbox in US dollars an hour, for `backends --cost`, `jobs` and `top`, instead of an
    estimate by the vendor's published prices."""
    most_cost: Amount | None = None
    """End one after the time for which it costs so many US dollars, by `hourly_cost` or else by the estimate."""
    max_sandboxes: Count | None = None
    """Refuse to create one more when so many of this profile are alive."""
    max_hours: Annotated[Amount, Field(le=24 * 365)] | None = None
    """Refuse to keep one for longer than so many hours."""
    allowed_gpus: Names | None = None
    """Refuse other kinds of GPU than these; an empty list refuses all."""
