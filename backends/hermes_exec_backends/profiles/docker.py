"""The profile of a container of Docker, or of an engine that speaks Docker's API."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import (
    Amount,
    Binds,
    Count,
    Gpus,
    LocalPath,
    Name,
    Names,
    Size,
    Table,
    Text,
    Words,
)


class DockerProfile(Profile, frozen=True):
    """A container: created from an image and removed at the end, or one that already runs."""

    target_field: ClassVar[str | None] = "image"
    attach_field: ClassVar[str | None] = "container"

    type: Literal["docker"] = "docker"
    """`docker`."""
    image: Name = "python:3.11-slim"
    """The image to start, or the name to give to the one that is built."""
    container: Name | None = None
    """A running container to work in instead of a new one; it is left running at the end."""
    engine: Text | None = None
    """The engine's address, such as `unix:///run/user/1000/podman/podman.sock`; `DOCKER_HOST` and the
    usual sockets when left out."""
    pull: Literal["missing", "always", "never"] = "missing"
    """When to pull the image."""
    platform: Name | None = None
    """The platform to pull or build, such as `linux/arm64`."""

    dockerfile: LocalPath | None = None
    """A Dockerfile to build the image from."""
    context: LocalPath | None = None
    """The folder sent to that build; the Dockerfile's own when left out."""
    build_args: Table = Field(default_factory=dict[str, str])
    """Arguments of that build."""
    requirements: Words = ()
    """Python requirements to build into an image on top of `image`, such as `numpy==2.1`."""

    name: Name | None = None
    """The name of the new container."""
    labels: Table = Field(default_factory=dict[str, str])
    """Labels of the new container, in addition to ours."""
    reuse: bool = False
    """Whether to take the container of that `name` if there is one with the same configuration."""
    user: Name | None = None
    """The user, or `uid:gid`, that commands run as."""
    hostname: Name | None = None
    """The container's host name."""
    init: bool = False
    """Whether the engine's own init runs in it; our first process reaps orphans as well."""
    runtime: Name | None = None
    """The engine's runtime, such as `runsc`."""

    network: Name = "none"
    """`none`, `bridge`, `host` or the name of a network."""
    binds: Binds = ()
    """Folders of the engine's host seen inside: `SOURCE:TARGET`, read-only unless `:rw` is added."""
    volumes: Table = Field(default_factory=dict[str, str])
    """Named volumes: the folder inside = the volume's name."""
    tmpfs: dict[str, Size] = Field(default_factory=dict[str, int])
    """Folders in memory: the folder inside = its size."""
    read_only: bool = False
    """Whether the root file system is read-only."""
    security_opt: Words = ()
    """Security options, such as `seccomp=FILE`."""
    cap_add: Names = ()
    """Capabilities to add."""
    cap_drop: Names = ()
    """Capabilities to drop."""

    cpus: Amount | None = None
    """CPUs at most; fractions are fine."""
    memory: Size | None = None
    """Memory at most, swap included."""
    pids: Count | None = None
    """Processes at most."""
    shm: Size | None = None
    """Size of /dev/shm."""
    ulimits: dict[str, int] = Field(default_factory=dict[str, int])
    """Resource limits, such as `nofile = 1024`; soft and hard alike."""
    gpus: Gpus | None = None
    """How many GPUs, `all`, or the ids of some."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        for other in ("image", "dockerfile", "requirements", "name"):
            if self.container and other in self.model_fields_set:
                raise ValueError(f"'container' is running already, so {other!r} has no effect")
        if self.reuse and not self.name:
            raise ValueError("'reuse' needs a 'name' to find the container by")
        return self
