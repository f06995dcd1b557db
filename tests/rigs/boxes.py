"""Small places inside another place, made of nothing but words: for what composition itself promises."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import Text
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.transport.shell.target import run_helper
from hermes_exec.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, BackendTraits, Check
    from hermes_exec.wrapper import ArgvAndEnv


class BoxProfile(Profile, frozen=True):
    """A box of that name."""

    target_field: ClassVar[str | None] = "name"

    type: Literal["box"] = "box"
    """`box`."""
    name: Text
    """What is added to the variable BOXES."""
    folder: str = ""
    """A folder to make, and to remove at the end."""


class Box(Wrapper):
    """Adds its name to BOXES. With a ``folder``, it makes one there at the start and removes it at the end."""

    type: ClassVar[str] = "box"

    def __init__(self, name: str, outer: Backend | None = None, *, folder: str = "") -> None:
        super().__init__(outer)
        self._name = name
        self._folder = folder

    @property
    def own_target(self) -> str:
        return f"box:{self._name}"

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Box:
        assert isinstance(profile, BoxProfile)
        return cls(profile.name, outer, folder=profile.folder)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        return []

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        return ["sh", "-c", 'BOXES="$BOXES$0"; export BOXES; exec "$@"', f"[{self._name}]", *argv], env

    async def enter(self) -> None:
        if self._folder:
            reply = await run_helper(self.outer, ["mkdir", self._folder])
            if reply.exit.code != 0:
                raise PlaceUnavailable(f"box {self._name}: {reply.failure}")

    async def leave(self, *, keep: bool) -> None:
        if self._folder and not keep:
            await run_helper(self.outer, ["rmdir", self._folder])


_ALONE = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_isolate() -> bool:
    """Whether a `Cell` works here; in a chroot, for one, the kernel makes no user namespaces."""
    return shutil.which("unshare") is not None and subprocess.run([*_ALONE, "true"], check=False).returncode == 0


class Cell(Box):
    """Every command in namespaces of its own, which nothing else can enter."""

    @property
    def traits(self) -> BackendTraits:
        return replace(super().traits, reattaches=False)

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        mounts = "mount -t tmpfs none /dev/shm; mount -t tmpfs none /tmp; mount -t tmpfs none /run; "
        return [*_ALONE, "sh", "-c", mounts + 'exec "$@"', "sh", *argv], env
