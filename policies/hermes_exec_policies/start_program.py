"""Start one untrusted program from outside in a sandbox of any kind: bubblewrap, Docker or Apptainer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.targets import parse_target
from hermes_exec.errors import PlaceUnavailable, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.sandbox import Confinement, Limits
    from hermes_exec_backends.sandbox.observe import WatchSpec
    from hermes_exec_backends.sandbox.run import Run

BUBBLEWRAP, DOCKER, SINGULARITY = "bubblewrap", "docker", "singularity"
_PROFILES = "/sys/kernel/security/apparmor/policy/profiles"


@dataclass(frozen=True, slots=True)
class SandboxTarget:
    """A target in which sandboxes are created on this machine."""

    kind: str = BUBBLEWRAP
    image: str = ""
    """The image of a container; bubblewrap uses this machine's own system."""
    engine: str = ""
    """The address of Docker's engine; empty for the default."""
    program: str = ""
    """The program of Apptainer; empty for the default."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.image}" if self.image else self.kind


LOCAL = SandboxTarget()


def parse_sandbox_target(target: str, profiles: Mapping[str, Profile] | None = None) -> SandboxTarget:
    """Parse a target: ``bubblewrap``, ``docker:IMAGE``, ``singularity:IMAGE``, or a profile of one of these.

    Raises:
        ConfigError: the target is invalid.
        Unsupported: no program can be started and inspected from outside there.
    """
    found = parse_target(target, profiles or {})
    profile, kind = found.profile, found.profile.type
    if len(found.chain) > 1 or kind not in {BUBBLEWRAP, DOCKER, SINGULARITY}:
        raise Unsupported(
            f"{target}: no attempts can be made there, because its processes cannot be inspected from outside",
            remedy="bubblewrap, docker:IMAGE or singularity:IMAGE on this machine",
        )
    settings = {
        name: str(getattr(profile, name, None) or "")
        for name in ("image", "engine", "program", "container", "instance")
    }
    if settings["container"] or settings["instance"]:
        raise Unsupported(f"{target}: a sandbox is always created, never an existing container", remedy=f"{kind}:IMAGE")
    if kind == BUBBLEWRAP:
        return LOCAL
    if not settings["image"]:
        raise Unsupported(f"{target}: a sandbox needs an image", remedy=f"{kind}:IMAGE")
    return SandboxTarget(kind, settings["image"], settings["engine"], settings["program"])


async def start(
    place: SandboxTarget,
    confinement: Confinement,
    argv: Sequence[str],
    *,
    stdin: bytes | None = b"",
    limits: Limits | None = None,
    watch: WatchSpec | None = None,
) -> Run:
    """Create a sandbox there and hold ``argv`` in it, ready to begin.

    ``stdin`` is None if it is passed to ``go``; ``watch`` selects the system calls to observe.

    Raises:
        UsageError: the specification or the program is invalid there.
        Unsupported: a required mechanism is not available there; nothing was started.
        PlaceUnavailable: the sandbox cannot be created; nothing was started.
    """
    if watch is not None and place.kind != BUBBLEWRAP:
        raise Unsupported(f"{place}: system calls cannot be observed there", remedy="bubblewrap")
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


async def fingerprint_enforcers(place: SandboxTarget, profile: str = "") -> str:
    """Identify the programs, the image and the AppArmor profile there, apart from others of the same names.

    Raises:
        PlaceUnavailable: there is no such image.
    """
    if place.kind == DOCKER:
        from hermes_exec_backends.docker.start import image_of

        parts = [await image_of(place.image, place.engine), stamp_program("runc")]
    elif place.kind == SINGULARITY:
        from hermes_exec_backends.singularity.start import CONFIGURATIONS, PROGRAMS

        programs = [place.program] if place.program else [*PROGRAMS]
        parts = await asyncio.to_thread(  # Apptainer's program is large
            lambda: [*map(stamp_program, programs), *map(stamp_file, CONFIGURATIONS), _stamp(place.image)]
        )
    else:
        parts = [stamp_program("bwrap"), stamp_program("setpriv")]
    return "\n".join([*parts, *read_profile_hashes(profile)])


def stamp_program(name: str) -> str:
    """``stamp_file`` of the program ``name`` on the PATH."""
    found = shutil.which(name)
    return stamp_file(found) if found else ""


def stamp_file(path: str) -> str:
    """The real path of a file, its inode, times, size and SHA-256; empty if it does not exist."""
    try:
        real = os.path.realpath(path)
        seen = os.stat(real)  # noqa: PTH116  it is not a Path
        identity = (seen.st_dev, seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        return f"{real} {identity} {_sha256(real, identity)}"
    except OSError:
        return ""


@lru_cache(maxsize=32)
def _sha256(path: str, _identity: tuple[int, ...]) -> str:
    """Hash a file, once for each ``identity``."""
    with open(path, "rb") as file:  # noqa: PTH123  likewise
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_profile_hashes(name: str, folder: str = _PROFILES) -> list[str]:
    """The hashes of the loaded AppArmor profiles of a name, which only root can read."""
    found: list[str] = []
    for path in sorted(Path(folder).glob("*/name")) if name else ():
        with contextlib.suppress(OSError):
            if path.read_text(encoding="utf-8", errors="replace").strip() == name:
                hashes = sorted(path.parent.glob("raw_sha*")) + sorted(path.parent.glob("sha*"))
                found += [f"{each.name} {each.read_text().strip()}" for each in hashes]
    return found


def _stamp(path: str) -> str:
    """Hash path, mode, size, time and inode of each file of an image."""
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
