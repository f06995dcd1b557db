"""Limits on single commands: by control group where one can be used, by setrlimit(2) otherwise.

A limit that cannot be enforced is refused rather than ignored.
"""

import os

from ..core.server import UnsupportedRequest
from ..process.command import CommandRequest, describe_error
from . import cgroups, rlimits
from .cgroups import CPU, MEMORY, PROCESSES
from .confinement import FILE_SIZE, OPEN_FILES, CommandLimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.loop import Loop
    from ..core.server import GuestServer, Request

_NAMES = (CPU, MEMORY, PROCESSES, FILE_SIZE, OPEN_FILES)
_PATIENCE = 20
"""Attempts, 10 ms apart, to remove the groups of processes that have just ended."""


class Limiter:
    """A factory of commands' limits, which knows the mechanisms available on this target."""

    def __init__(self, server: "GuestServer") -> None:
        self._server = server
        self._prefix = cgroups.prefix()
        self._made = 0
        self._confinements: "list[CommandLimits]" = []
        self._end = server.on_idle
        server.on_idle = self._clean_up
        self._homes = cgroups.find()
        self._memory = 0 if MEMORY in self._homes else rlimits.memory()
        self._bounds_processes = PROCESSES not in self._homes and rlimits.bounds_processes()

    def info(self, request: "Request", _: "dict[str, Any]") -> None:
        """Answer with the mechanism that enforces each limit."""
        request.finish({name: self._enforcer(name) for name in _NAMES})

    def _enforcer(self, name: str) -> str:
        home = self._homes.get(name)
        if home is not None:
            return home.enforcer
        return "none" if name == PROCESSES and not self._bounds_processes else "rlimit"

    def confine(self, loop: "Loop", limits: "dict[str, Any]") -> CommandLimits:
        """Prepare the limits of one command; raise Unsupported if one of them cannot be enforced."""
        for name, value in limits.items():
            if name not in _NAMES or not (isinstance(value, int) or name == CPU) or value <= 0:
                raise ValueError("no limit {}={}".format(name, value))
            if self._enforcer(name) == "none":
                raise UnsupportedRequest("nothing here can limit {}".format(name))
        try:
            return self._prepare(loop, limits)
        except OSError as error:
            raise UnsupportedRequest("its limits could not be set: {}".format(describe_error(error))) from error

    def _prepare(self, loop: "Loop", limits: "dict[str, Any]") -> CommandLimits:
        folders: "dict[str, str]" = {}
        groups: "dict[str, tuple[cgroups.CgroupParent, str]]" = {}
        for name in limits:
            home = self._homes.get(name)
            if home is not None:
                if home.folder not in folders:
                    folders[home.folder] = self._make(home.folder)
                groups[name] = (home, folders[home.folder])
        made = CommandLimits(loop, limits, groups)
        self._confinements = [other for other in self._confinements if not other.removed]
        self._confinements.append(made)
        counted = rlimits.processes() if PROCESSES in limits and PROCESSES not in groups else 0
        try:
            made.set_limits(self._memory, counted)
        except OSError:
            made.remove()
            raise
        return made

    def _make(self, parent: str) -> str:
        self._made += 1
        folder = "{}/{}{}".format(parent, self._prefix, self._made)
        os.mkdir(folder)
        return folder

    def _clean_up(self, attempt: int = 0) -> None:
        """Remove all groups before the guest ends."""
        self._confinements = [made for made in self._confinements if not made.remove()]
        server = self._server
        if self._confinements and attempt < _PATIENCE:
            server.loop.call_later(0.01, lambda: self._clean_up(attempt + 1))
        elif not server.clients and not any(keeps() for keeps in server.keeps_alive):
            self._end()


def install(server: "GuestServer") -> None:
    """Register ``limits_info``, and enable limits for every command."""
    limiter = Limiter(server)
    CommandRequest.confine = staticmethod(limiter.confine)
    server.operations["limits_info"] = limiter.info
