"""The kinds of place in which one untrusted program can be started from outside, behind one function."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.config.targets import parse_target
from hermes_exec.errors import PlaceUnavailable, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.confined import Confinement, Limits
    from hermes_exec_backends.confined.observe import Watch
    from hermes_exec_backends.confined.run import Run

BUBBLEWRAP, DOCKER, SINGULARITY = "bubblewrap", "docker", "singularity"


@dataclass(frozen=True, slots=True)
class Place:
    """Where sandboxes are made on this machine, and what of."""

    kind: str = BUBBLEWRAP
    image: str = ""
    """The image of a container; bubblewrap shows this machine's own system."""
    engine: str = ""
    """The address of Docker's engine; the usual one where it is empty."""
    program: str = ""
    """The program of Apptainer; the usual one where it is empty."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.image}" if self.image else self.kind


LOCAL = Place()


def place_of(target: str, profiles: Mapping[str, Profile] | None = None) -> Place:
    """The place that a target means: ``bubblewrap``, ``docker:IMAGE``, ``singularity:IMAGE``, or a profile of these.

    Raises:
        ConfigError: it is no target.
        Unsupported: nothing can be started and looked at from outside there.
    """
    found = parse_target(target, profiles or {})
    profile, kind = found.profile, found.profile.type
    if len(found.chain) > 1 or kind not in {BUBBLEWRAP, DOCKER, SINGULARITY}:
        raise Unsupported(
            f"{target}: no attempts can be made there, because nothing in it can be looked at from outside",
            remedy="bubblewrap, docker:IMAGE or singularity:IMAGE on this machine",
        )
    said = {
        name: str(getattr(profile, name, None) or "")
        for name in ("image", "engine", "program", "container", "instance")
    }
    if said["container"] or said["instance"]:
        raise Unsupported(f"{target}: a sandbox is made anew, never found", remedy=f"{kind}:IMAGE")
    if kind == BUBBLEWRAP:
        return LOCAL
    if not said["image"]:
        raise Unsupported(f"{target}: a sandbox needs an image that is there", remedy=f"{kind}:IMAGE")
    return Place(kind, said["image"], said["engine"], said["program"])


async def start(
    place: Place,
    confinement: Confinement,
    argv: Sequence[str],
    *,
    stdin: bytes | None = b"",
    limits: Limits | None = None,
    watch: Watch | None = None,
) -> Run:
    """Make a sandbox there, and hold ``argv`` in it, ready to begin.

    ``stdin`` of None comes with ``go``; ``watch`` is what is to be seen of it.

    Raises:
        UsageError: the specification or the program makes no sense there.
        Unsupported: something required cannot be applied there; nothing was started.
        PlaceUnavailable: the sandbox cannot be made; nothing was started.
    """
    if watch is not None and place.kind != BUBBLEWRAP:
        raise Unsupported(f"{place}: what a program is refused cannot be seen there", remedy="bubblewrap")
    if place.kind == DOCKER:
        from hermes_exec_backends.docker.start import start as start_docker

        return await start_docker(
            confinement, argv, image=place.image, stdin=stdin or b"", limits=limits, engine=place.engine
        )
    if place.kind == SINGULARITY:
        from hermes_exec_backends.singularity.start import start as start_singularity

        return await start_singularity(
            confinement, argv, image=place.image, stdin=stdin or b"", limits=limits, program=place.program
        )
    from hermes_exec_backends.bubblewrap.start import start as start_bubblewrap

    return await start_bubblewrap(confinement, argv, stdin=stdin, limits=limits, watch=watch)


async def content(place: Place) -> str:
    """What tells the place's image from another one of the same name, and its engine; empty where there is none.

    Raises:
        PlaceUnavailable: there is no such image.
    """
    if place.kind == DOCKER:
        from hermes_exec_backends.docker.start import image_of

        return await image_of(place.image, place.engine)
    return await asyncio.to_thread(_stamp, place.image) if place.image else ""


def _stamp(path: str) -> str:
    """Of an image file or an unpacked tree: each file's place, size and time."""
    digest = hashlib.sha256()
    try:
        for name in [path, *_below(path)]:
            seen = os.lstat(name)
            digest.update(f"{name}\0{seen.st_mode}\0{seen.st_size}\0{seen.st_mtime_ns}\0{seen.st_ino}\n".encode())
    except OSError as error:
        raise PlaceUnavailable(f"singularity: the image {path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _below(path: str) -> list[str]:
    return sorted(f"{top}/{name}" for top, folders, files in os.walk(path) for name in (*folders, *files))
