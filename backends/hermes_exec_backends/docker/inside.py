"""A container of an engine that is in another place, such as a host behind SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_backends.docker.backend import DockerBackend
from hermes_exec_backends.docker.engine import Engine
from hermes_exec_backends.docker.tunnel import Tunnel

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec_backends.profiles.docker import DockerProfile


class DockerInside(DockerBackend):
    """``DockerBackend``, with its engine at the end of a tunnel. Paths of binds are those of that place."""

    def __init__(self, profile: DockerProfile, outer: Backend) -> None:
        self._tunnel = Tunnel(outer, profile.engine)
        super().__init__(profile, Engine(self._tunnel.address))
        self.outer = outer

    @property
    def target(self) -> str:
        """Ours, and that of the place outside."""
        return f"{super().target}+{self.outer.target}"

    @property
    def needs_checksum(self) -> bool:
        """As the way to the place outside."""
        return self.outer.needs_checksum

    @property
    def place(self) -> str:
        """Ours, and that of the place outside."""
        return f"{super().place}+{self.outer.place}".rstrip("+")

    async def open(self) -> None:
        """Open the place outside, then the container in it; an error names the one that failed as its ``place``."""
        self.outer.lease_s = self.lease_s
        self.outer.returning, self.outer.adopting = self.returning, self.adopting
        try:
            await self.outer.open()
        except HermesError as error:
            error.place = error.place or self.outer.target
            raise
        target = self.target
        try:
            await self._tunnel.open()
            await super().open()
        except BaseException as error:
            await self._tunnel.close()
            await self.outer.close()
            if isinstance(error, PlaceUnavailable) and self._tunnel.complaint:
                raise self._told(error, target) from error
            if isinstance(error, HermesError):
                error.place = error.place or target
            raise

    def _told(self, error: PlaceUnavailable, target: str) -> PlaceUnavailable:
        told = PlaceUnavailable(f"{error.what} ({self.outer.target}: {self._tunnel.complaint})", remedy=error.remedy)
        told.place = target
        return told

    async def release(self) -> None:
        """Leave the container to its jobs; the place outside is let go."""
        try:
            await super().release()
        finally:
            await self._let_go(keep=True)

    async def close(self, *, keep: bool = False) -> None:
        """Close the container, then the place outside."""
        try:
            await super().close(keep=keep)
        finally:
            await self._let_go(keep=keep)

    async def _let_go(self, *, keep: bool) -> None:
        try:
            await self._tunnel.close()
        finally:
            await self.outer.close(keep=keep)
