"""A conversation's shell in the target, and the conversion of command results to envelopes."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import secrets
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.agent_shell import AGENT
from hermes_exec_agent.tools.envelope import Envelope, Failure

if TYPE_CHECKING:
    from hermes_exec import Terminal
    from hermes_exec.result import Result
    from hermes_exec.terminal.session import Session

SHOWN = 20_000
"""Characters of output that a model reads; the rest is kept in the target."""
KEPT = 4 << 20
"""Bytes of each output that are kept."""
_HEAD = 0.4
_MAKE = 'd=$(mktemp -d /tmp/hermes-agent.XXXXXXXX) && cd "$d" && pwd -P'
_HOSTS = frozenset({"local", "ssh", "slurm"})
"""Kinds of targets that are a whole machine."""
_ASKED_S = 30.0
_SHOWN_OF_COMMAND = 100


class Workspace:
    """A shell of its own, so that conversations that share a terminal do not change each other's folder."""

    def __init__(self, terminal: Terminal, place: str, model: str = "", folder: str = "") -> None:
        self._folder = folder or None
        self.terminal = terminal
        self.place = place
        self.env = {AGENT: model or "unknown"}
        self.background: dict[str, str] = {}
        """Background commands that end with the conversation, by the ids of their jobs."""
        self.lasting: dict[str, str] = {}
        """Commands that were started as jobs with ``keep``."""
        self._session: Session | None = None
        self._cwd = ""
        self.home = ""
        """The person's home folder in the target."""
        self.root = ""
        """The folder in which the conversation began, without links, whose files may be read; empty if there is
        none."""
        self.start = ""
        """The same, as the shell named it."""
        self._moved = True
        """Whether the shell's folder may have changed: the end of a command in it was not observed."""
        self.kept = ""
        """The folder of long outputs of this conversation, without links; empty before the first one."""
        self._turn = asyncio.Lock()

    async def session(self) -> Session:
        """Return the shell."""
        async with self._turn:
            if self._session is None:
                self._session = await self.terminal.session(env=self.env, cwd=self._folder)
            root = ""
            if first := not self.home:
                result = await self._session.run('printf "%s\\0" "$HOME"; command pwd -P', timeout=_ASKED_S)
                home, _, root = result.stdout_text.removesuffix("\n").partition("\0")
                self.home = home or "/"
            if self._moved:
                await self._ask_folder(self._session)
            if first and self._is_workspace(root):
                self.root, self.start = root, self._cwd
            return self._session

    async def run(self, command: str, *, timeout: float, workdir: str = "") -> Envelope:
        """Run a command in the shell; with ``workdir`` in a subshell there."""
        session = await self.session()
        folder = await self.path(workdir) if workdir else None
        self._moved = self._moved or folder is None
        result = await session.run(command, timeout=timeout, cwd=folder, merge_stderr=True, max_output=KEPT)
        if folder is None:
            await self._ask_folder(session)
        return await self.envelope(result, folder or self._cwd)

    async def cwd(self) -> str:
        """Return the shell's folder."""
        await self.session()
        return self._cwd

    async def path(self, path: str) -> str:
        """Make a path absolute, relative to the shell's folder."""
        await self.session()
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return posixpath.normpath(posixpath.join(self._cwd or "/", path))

    @property
    def is_machine(self) -> bool:
        """Whether the target is a whole machine, so that commands may act outside of the workspace."""
        return self.terminal.kind in _HOSTS

    def _is_workspace(self, folder: str) -> bool:
        """Whether a folder can be a workspace; the root of a machine cannot."""
        return folder.startswith("/") and (folder != "/" or not self.is_machine)

    async def envelope(self, result: Result, cwd: str) -> Envelope:
        """Convert a command's result, shortened for a model."""
        text, reference = await self.shorten(result.stdout_text)
        error = None
        if result.timed_out:
            remedy = "give it a longer timeout, or run it in the background"
            error = Failure("timeout", f"{result.reason}; its processes were ended, too. Try: {remedy}")
        elif result.exit_code is None:
            error = Failure("limit" if result.limit else "signal", result.reason)
        return Envelope(
            ok=result.ok, place=self.place, output=text, exit_code=None if error else result.exit_code,
            truncated=bool(reference) or bool(result.truncated), output_ref=reference, cwd=cwd,
            duration_s=result.duration_s, note=result.note, error=error,
        )  # fmt: skip

    async def shorten(self, text: str) -> tuple[str, str]:
        """Return a text, without its middle if it is long, and the file in the target that has all of it."""
        if len(text) <= SHOWN:
            return text, ""
        reference = await self.keep(text.encode("utf-8", "replace"))
        head = int(SHOWN * _HEAD)
        missing = len(text) - SHOWN
        where = f"; all of it is in {reference}" if reference else " and could not be kept"
        return f"{text[:head]}\n[... {missing} characters are left out{where} ...]\n{text[head - SHOWN :]}", reference

    async def keep(self, data: bytes) -> str:
        """Write bytes to a new private file in the target; return its path, or an empty string if that fails."""
        try:
            if not self.kept:
                created = await self.terminal.run(["sh", "-c", _MAKE], timeout=_ASKED_S)
                self.kept = created.stdout_text.rstrip("\n") if created.ok else ""
            if not self.kept:
                return ""
            path = f"{self.kept}/{secrets.token_hex(4)}.txt"
            await self.terminal.write(path, data)
        except HermesError:
            return ""  # the command's result does not depend on it
        return path

    @property
    def jobs(self) -> set[str]:
        """The ids of all jobs that this conversation started."""
        return self.background.keys() | self.lasting.keys()

    async def list_running(self) -> list[str]:
        """List the background processes that still run, one line each; all started ones if the target cannot tell."""
        started = self.jobs
        if not started:
            return []
        try:
            async with asyncio.timeout(_ASKED_S):
                known = await self.terminal.jobs()
        except (HermesError, TimeoutError):
            return [f"{id}, unless it has ended: {self.place} cannot be asked" for id in sorted(started)]
        return [_line_of(each.id, each.command) for each in known if each.id in started and each.result is None]

    async def runs_in_background(self) -> bool:
        """Whether a command still runs that ends with the conversation.

        Raises:
            PlaceError: the connection to the target is lost.
        """
        running = {status.id for status in await self.terminal.jobs() if status.result is None}
        return not running.isdisjoint(self.background)

    async def end_background(self) -> list[str]:
        """End background processes, except for jobs started with ``keep``; return a line for each."""
        commands, self.background = self.background, {}
        ended = await asyncio.gather(*(self._end(id, command) for id, command in commands.items()))
        return [line for line in ended if line]

    async def _end(self, id: str, command: str) -> str:
        shown = _line_of(id, command)
        try:
            job = await self.terminal.job(id)
            running = (await job.status()).result is None
            if running:
                await job.kill(max_output=0)
            await job.prune()  # a remembered ended job would keep the target
        except UsageError:
            return ""  # it ended with an earlier lease
        except HermesError as error:
            return f"{shown} (it ends with the lease of the target: {error.what})"
        return shown if running else ""

    async def close(self) -> list[str]:
        """Close the shell and remove kept outputs; return the ids of the jobs that keep running."""
        running: list[str] = []
        for id in self.lasting:
            try:
                await (await self.terminal.job(id)).prune()  # a remembered ended job would keep the target
            except UsageError:
                running.append(id)
            except HermesError:
                pass  # the target is lost
        self.lasting = {}
        with contextlib.suppress(HermesError):
            if self.kept:
                await self.terminal.run(["rm", "-rf", "--", self.kept], timeout=_ASKED_S)
                self.kept = ""
            if self._session is not None:
                await self._session.close()
        return running

    async def _ask_folder(self, session: Session) -> None:
        """Ask the shell for its folder; if it cannot tell, the folder is unchanged."""
        result = await session.run("command pwd", timeout=_ASKED_S)
        if result.ok and result.stdout:
            self._cwd = result.stdout_text.removesuffix("\n")
        self._moved = False


def _line_of(id: str, command: str) -> str:
    return f"{id}: {' '.join(command.split())[:_SHOWN_OF_COMMAND]}"
