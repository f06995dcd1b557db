"""Run commands in a Singularity or Apptainer container, started by the program of that name in the outer target.

An instance lives as long as the terminal, so that no command waits for the start of a container, and all commands
share processes, /tmp and written files. The container ends with its last guest, or when the lease expires after a
crash of the orchestrator: a small process in the outer target ends it (``scripts.py``).

The runtime logs to standard error, which would be mixed with a command's output, so it always runs with its quiet
option; the messages of a failed start are read from a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from hermes_exec._async import shield_to_completion
from hermes_exec.backend import OpenOptions
from hermes_exec.errors import HermesError, PlaceGone, PlaceUnavailable
from hermes_exec.transport.shell.target import run_helper
from hermes_exec.wrapper import ArgvAndEnv, Wrapper
from hermes_exec_backends._shared.lease_process import LeaseProcess
from hermes_exec_backends.singularity import scripts
from hermes_exec_backends.singularity.images import ADDRESS, ensure_image
from hermes_exec_backends.singularity.options import INSTANCE, PROGRAMS, home_mode, limits_asked, start_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, BackendTraits, Check, Leftover
    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.singularity import SingularityProfile

progress = logging.getLogger("hermes_exec.progress")
"""Progress messages of slow operations."""

_START_S = 1800.0
"""An image may have to be downloaded and converted first."""
_FIND = 'for name; do command -v "$name" && exit; done; exit 1'
_LOCATE = 'case $1 in "~/"*) echo "$HOME/${1#??}" ;; *) echo "$PWD/$1" ;; esac'
"""The path of an image that begins at the home folder, or at the folder in which commands start."""


class SingularityBackend(Wrapper):
    """A container of an image, or an existing instance."""

    type: ClassVar[str] = "singularity"
    features: ClassVar[frozenset[str]] = frozenset({"gpu"})

    def __init__(self, profile: SingularityProfile, outer: Backend | None = None) -> None:
        super().__init__(outer)
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._program = ""
        self._name = ""
        self._holder: LeaseProcess | None = None
        self._exec: list[str] = []

    @property
    def own_target(self) -> str:
        """Return the target with the image, or with the instance's name."""
        from hermes_exec.config.targets import format_target

        return format_target(self._profile)

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; the GPU of an instance that existed before is unknown."""
        wants_gpu = self._profile.nv or self._profile.rocm
        has_gpu = wants_gpu and (self.options.reopen or not self._profile.instance)
        return replace(super().traits, features=self.features if has_gpu else frozenset())

    @property
    def own_resource_id(self) -> str:
        """The name of a container that this project created."""
        return self._name

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """Return the backend of a profile in the outer target."""
        from hermes_exec_backends.profiles.singularity import SingularityProfile

        assert isinstance(profile, SingularityProfile)  # noqa: S101  the registry pairs them
        return cls(profile, outer)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Check the program on this machine."""
        from hermes_exec_backends.singularity.doctor import examine

        return await examine(cast("SingularityProfile | None", profile))

    @classmethod
    async def reap(cls) -> list[Leftover]:
        """Remove instances of this project on this machine that no lease process holds."""
        from hermes_exec_backends.singularity.cleanup import reap

        program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
        return await reap(program) if program else []

    async def enter(self) -> None:
        """Find the program, and start an instance.

        Raises:
            PlaceUnavailable: it is missing, or does not start the image; includes its error output.
            PlaceGone: the container to reopen has ended.
        """
        self._program = await self._find()
        if self._profile.instance:
            self._exec = await self._attach(self._profile.instance)
            self._name = self._profile.instance if self.options.take_ownership else ""
            return
        image = await self._image()
        name = f"hx-{secrets.token_hex(6)}"
        warm = self._profile.warm
        userns = {None: "auto", True: "yes", False: "no"}[self._profile.userns]
        options = start_options(self._profile)
        argv = ["/bin/sh", "-c", scripts.HOLD, "sh", name, self._program, f"{self.options.lease_s:.0f}"]
        argv += ["yes" if warm else "no", userns, home_mode(self._profile), image, *options]
        try:
            self._holder = await LeaseProcess.start(self.outer, argv, patience_s=_START_S, farewell=b"end")
        except BaseException as error:
            await shield_to_completion(self._remove(name))
            if isinstance(error, PlaceUnavailable):
                raise self._build_refusal(error.what) from error
            raise
        self._name = name
        _, uid, work, home, *flags = self._holder.fields
        self._exec = [*flags, f"{INSTANCE}{name}"] if warm else [*flags, *self._folders(uid, work, home), image]

    async def _remove(self, name: str) -> None:
        """Remove the parts of a container whose start was not confirmed."""
        with contextlib.suppress(HermesError):
            await run_helper(self.outer, ["/bin/sh", "-c", scripts.END, "sh", name, self._program])

    async def _image(self) -> str:
        image = self._profile.image or ""
        if not (self._profile.definition or self._profile.requirements):
            return image if image.startswith("/") or ADDRESS.fullmatch(image) else await self._locate(image)
        progress.info("singularity: building an image, unless it was built before")
        return await ensure_image(self.outer, self._program, self._profile)

    async def _locate(self, image: str) -> str:
        """Return the absolute path of an image, as the lease process and the commands start in other folders."""
        reply = await run_helper(self.outer, ["/bin/sh", "-c", _LOCATE, "sh", image])
        return os.fsdecode(reply.stdout).removesuffix("\n") if reply.exit.code == 0 else image

    def _folders(self, uid: str, work: str, home: str) -> list[str]:
        """Return the options by which containers that share no processes share their files."""
        options = [*start_options(self._profile), "--workdir", f"{work}/work"]
        homes = {"private": ["--home", f"{work}/home:{home}"], "shared": ["--home", home]}
        if home == "/":  # there is none outside; the lease process does the same
            homes = {"private": ["--no-home"]}
        # The control socket has the same path in every container, so that a later one finds it.
        door = f"{work}/run:/run/user/{0 if self._profile.fakeroot else uid}"
        return [*options, *homes.get(home_mode(self._profile), []), "--bind", door]

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """Return the argv of another process in the instance; variables get the names that the runtime passes on."""
        prefix = "SINGULARITYENV_" if self._program.endswith("singularity") else "APPTAINERENV_"
        variables = {prefix + name: value for name, value in env.items()}
        if not self._profile.clean_env:
            return [self._program, "--silent", "exec", *self._exec, *argv], variables
        words = ["/bin/sh", "-c", scripts.KEEP_GPUS, prefix, self._program, "--silent", "exec", "--cleanenv"]
        return [*words, *self._exec, *argv], variables

    async def leave(self, *, keep: bool) -> None:
        """End the container; with ``keep`` it remains for the lease, as an instance that can be attached to."""
        await self._part_with("" if keep else scripts.END)

    async def leave_to_jobs(self) -> None:
        """Let the container end with its last guest."""
        await self._part_with(scripts.ENTRUST)

    async def _part_with(self, script: str) -> None:
        name, self._name = self._name, ""
        holder, self._holder = self._holder, None
        try:
            if name and script:
                await run_helper(self.outer, ["/bin/sh", "-c", script, "sh", name, self._program])
        finally:
            if holder is not None:
                holder.disconnect()

    async def _find(self) -> str:
        wanted = [self._profile.program] if self._profile.program else PROGRAMS
        reply = await run_helper(self.outer, ["/bin/sh", "-c", _FIND, "sh", *wanted])
        lines = reply.stdout.decode("utf-8", "replace").splitlines()
        if reply.exit.code != 0 or not lines:
            raise PlaceUnavailable(
                f"singularity: no {' or '.join(wanted)} at {self.outer.target}",
                remedy="install Apptainer there, name it as `program`, or load it: setup = ['module load apptainer']",
            )
        return lines[-1]

    async def _attach(self, name: str) -> list[str]:
        """Return the way to enter the existing instance."""
        rest = [f"{INSTANCE}{name}"]
        if self.options.reopen:
            reply = await run_helper(self.outer, ["/bin/sh", "-c", scripts.FIND, "sh", name, self._program])
            kind, *folders = reply.stdout.decode("utf-8", "replace").rpartition("hx ")[2].split()[:4] or [""]
            if kind not in {"instance", "folder"} or (kind == "folder" and len(folders) != 3):
                raise PlaceGone(f"singularity: the container {name!r} of {self._profile.image} has ended")
            if kind == "folder":
                rest = [*self._folders(*folders), await self._image()]
        said = ""
        for flags in ([], ["--userns"]):
            argv = [self._program, "--silent", "exec", *flags, *rest, "/bin/sh", "-c", ":"]
            reply = await run_helper(self.outer, argv)
            if reply.exit.code == 0:
                return [*flags, *rest]
            said = reply.failure
        raise PlaceUnavailable(f"singularity: the instance {name!r} cannot be entered: {said}")

    def _build_refusal(self, said: str) -> PlaceUnavailable:
        place = f"singularity: {self._profile.image or self._profile.definition} does not start at {self.outer.target}"
        if "no driver of such GPUs" in said:
            return PlaceUnavailable(f"{place}: {said}", remedy="leave it out, or ask for a node that has GPUs")
        limits = limits_asked(self._profile)
        if limits and any(word in said for word in ("cgroup", "systemd")):
            return PlaceUnavailable(
                f"{place}: its limits ({', '.join(limits)}) cannot be enforced there: {said}",
                remedy="leave them out, and limit from outside: a Slurm allocation, or `limits` of a command",
            )
        remedy = "a path there, or an address such as docker://python:3.11" if "could not open image" in said else ""
        return PlaceUnavailable(f"{place}: {said}", remedy=remedy)
