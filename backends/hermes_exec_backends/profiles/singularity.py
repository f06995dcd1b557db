"""The profile of a Singularity or Apptainer container."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import Amount, Argument, Binds, Count, LocalPath, Name, Names, Size, Words


class SingularityProfile(Profile, frozen=True):
    """A container of an image file, a sandbox folder or a registry's image; or an instance that runs."""

    target_field: ClassVar[str | None] = "image"
    attach_field: ClassVar[str | None] = "instance"

    type: Literal["singularity"] = "singularity"
    """`singularity`, or `apptainer`, which means the same."""
    image: Argument | None = None
    """A SIF file or a sandbox folder at the outer target, or an address such as `docker://python:3.11`.

    A relative path starts in the folder in which that target's commands start, and `~/` at its home folder."""
    instance: Name | None = None
    """A running instance to work in instead of a new one; it is left running at the end."""
    definition: LocalPath | None = None
    """A definition file, or a Dockerfile, of this machine to build the image from."""
    requirements: Words = ()
    """Python requirements to build into an image on top of `image`."""
    program: Argument | None = None
    """The program to use there; `apptainer`, else `singularity`, when left out."""

    contain: bool = True
    """Whether it gets its own /tmp, home, processes and IPC (`--containall`)."""
    clean_env: bool = True
    """Whether the variables of the outer target stay outside (`--cleanenv`)."""
    home: bool = False
    """Whether the home folder of the outer target is seen inside."""
    binds: Binds = ()
    """Folders of the outer target seen inside: `SOURCE:TARGET`, read-only unless `:rw` is added."""
    overlay: Words = ()
    """Persistent overlays: files or folders of the outer target."""
    writable_tmpfs: bool = True
    """Whether the root can be written to, in memory and until the end only."""
    nv: bool = False
    """Whether NVIDIA GPUs are seen inside."""
    rocm: bool = False
    """Whether AMD GPUs are seen inside."""
    network: Literal["host", "none"] = "host"
    """`none` cuts the network off, where the target allows it."""
    userns: bool | None = None
    """Whether to use a user namespace; only where the setuid path fails, when left out."""
    fakeroot: bool = False
    """Whether to be root inside."""
    security: Names = ()
    """Security options, such as `seccomp:FILE`."""
    warm: bool = True
    """Whether an instance is kept for the life of the terminal, so that no command waits for a start."""

    cpus: Amount | None = None
    """CPUs at most, where the target can enforce it."""
    memory: Size | None = None
    """Memory at most, where the target can enforce it."""
    pids: Count | None = None
    """Processes at most, where the target can enforce it."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if not (self.image or self.instance or self.definition):
            raise ValueError("one of 'image', 'instance' or 'definition' is missing")
        if self.instance and (self.image or self.definition or self.requirements):
            raise ValueError("'instance' is one that runs already, so it takes no image")
        return self
