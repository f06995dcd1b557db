"""One exec of the engine as a channel: its connection, upgraded from HTTP, on the event loop.

The engine's API reports how a command ended; the stream is not evidence: the engine writes its own errors to the
command's standard output, and a stream also ends when the connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Channel, Exit, OutputReceiver, Receiver
from hermes_exec.errors import OutcomeUnknown, PlaceGone, PlaceUnavailable
from hermes_exec.transport.heartbeat import Heartbeat
from hermes_exec_backends.docker.demux import ENGINE, STDERR, Demux
from hermes_exec_backends.docker.engine import SOON_S
from hermes_exec_backends.docker.errors import Refused
from hermes_exec_backends.docker.sender import WAIT, Sender

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Receiver
    from hermes_exec_backends.docker.engine import Engine


_NOT_FOUND = 404
_KILLED = 137
_NO_PROGRAM = (126, 127)
_PAUSED = "the container is paused"
_PATIENCE_S = 2.0
"""Seconds for an exec to end after its connection broke; an exec that still runs then is reported as lost."""
_LATER_S = 0.1


class Container:
    """A container that exists, or existed."""

    def __init__(self, engine: Engine, id: str, user: str | None = None) -> None:
        self.id = id
        self._engine = engine
        self._user = user

    async def spawn(self, argv: Sequence[str | bytes], receiver: Receiver, env: Mapping[str, str]) -> Channel:
        """Start a program in the container.

        Raises:
            PlaceUnavailable: it could not be started; nothing ran.
        """
        words = [_text(word) for word in argv]
        variables = [f"{_text(name)}={_text(value)}" for name, value in env.items()]

        options = {"stdin": True, "environment": variables, "user": self._user or ""}
        try:
            made = await self._engine.call(
                "docker: the command was not started",
                lambda client: client.exec_create(self.id, words, **options),
                SOON_S,
            )
        except Refused as error:
            why = await self.death()
            if why and why != _PAUSED:
                raise PlaceGone(f"docker: {why}") from error
            raise PlaceUnavailable(f"docker: {why or error.said}") from error
        connection = await self._engine.connect()
        channel = ExecChannel(connection, Exec(self._engine, self, str(made["Id"])), receiver)
        await channel.start(self._engine.version)
        return channel

    async def inspect(self) -> dict[str, Any]:
        """Return the engine's description of the container.

        Raises:
            Refused: with status 404 when it no longer exists.
            PlaceUnavailable: the engine does not answer.
        """
        found: dict[str, Any] = await self._engine.call(
            f"docker: container {self.id[:12]}", lambda client: client.inspect_container(self.id), SOON_S
        )
        return found

    async def death(self) -> str:
        """Describe how the container ended; empty while it runs.

        Raises:
            PlaceUnavailable: the engine does not answer.
        """
        try:
            state = (await self.inspect())["State"]
        except Refused as error:
            if error.status != _NOT_FOUND:
                raise
            return "the container was removed"
        if state.get("Running"):
            return _PAUSED if state.get("Paused") else ""
        if state.get("OOMKilled"):
            return "the container was killed: it had used up its memory"
        said = state.get("Error") or ""
        return f"the container ended with exit code {state.get('ExitCode')} {said}".rstrip()

    async def remove(self) -> None:
        """Kill and remove the container, with its anonymous volumes.

        Raises:
            Refused: with status 404 when it no longer exists, 409 when another process is removing it.
        """
        await self._engine.call(
            f"docker: container {self.id[:12]}",
            lambda client: client.remove_container(self.id, v=True, force=True),
            SOON_S,
        )

    async def signal(self, name: str) -> None:
        """Send a signal to the container's first process.

        Raises:
            PlaceUnavailable: it does not run, or the engine does not answer.
        """
        what = f"docker: container {self.id[:12]}"
        await self._engine.call(what, lambda client: client.kill(self.id, signal=name), SOON_S)


class Exec:
    """One program that was started in a container, or failed to start."""

    def __init__(self, engine: Engine, container: Container, id: str) -> None:
        self.id = id
        self.began_never = False
        """True once the engine has reported that the program could not be started."""
        self.keepalive_s = engine.keepalive_s
        self._engine = engine
        self._container = container

    async def ping(self) -> None:
        """Return when the engine has answered, on another connection than the command's.

        Raises:
            PlaceUnavailable: it does not answer in time.
        """
        await self._engine.call("docker", lambda client: client.ping(), self.keepalive_s)

    async def _inspect(self) -> dict[str, Any]:
        state: dict[str, Any] = await self._engine.call("docker", lambda client: client.exec_inspect(self.id), SOON_S)
        if not state.get("Running") and not state.get("Pid") and state.get("ExitCode") in _NO_PROGRAM:
            self.began_never = True
        return state

    async def began(self) -> bool:
        """Return whether the program was started; waits until the engine knows."""
        pause = 0.001
        while True:
            try:
                state = await self._inspect()
            except PlaceUnavailable:
                return True  # there is no evidence of a failed start
            if state.get("Pid") or not state.get("Running"):
                return not self.began_never
            pause = min(pause * 2, 0.1)
            await asyncio.sleep(pause)

    async def outcome(self, broken: str) -> Exit:
        """Return how the exec ended, once it has; ``broken`` is the reason why its connection broke, if it did."""
        try:
            return await self._wait_until_ended(broken)
        except PlaceUnavailable as error:
            return Exit(lost=error.what)

    async def _wait_until_ended(self, broken: str) -> Exit:
        clock = asyncio.get_running_loop().time
        give_up = clock() + _PATIENCE_S
        pause = 0.0005
        while True:
            try:
                state = await self._inspect()
            except Refused:
                return Exit(lost=await self._container.death() or "the engine has forgotten it")
            if not state.get("Running"):
                break
            if broken and clock() > give_up:
                return Exit(lost=f"the connection to the engine broke: {broken}")
            pause = min(pause * 2, 1.0)
            await asyncio.sleep(pause)
        code = state.get("ExitCode")
        if code == _KILLED:
            await asyncio.sleep(_LATER_S)  # the first process of a dying container ends last
        if code is None or code >= _NO_PROGRAM[0]:
            death = await self._container.death()
            if death:
                return Exit(lost=death)
        return Exit(lost="the engine does not know how it ended") if code is None else Exit(code=int(code))


def _text(word: str | bytes) -> str:
    """Decode an argument: the engine takes JSON, and so text."""
    text = os.fsdecode(word)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PlaceUnavailable("docker: an engine takes only words and variables that are UTF-8") from None
    return text


_READ = 256 << 10
"""More than a unix socket buffers."""
_SMALL = 16 << 10
"""A large buffer for a small read costs more than the read."""
_LONGEST_HEADER = 64 << 10
_BEGUN = (101, 200)
_START_S = 45.0
"""Seconds for an engine to confirm the start."""


class ExecChannel(Channel):
    """The streams of one exec. ``start`` asks the engine to begin it."""

    def __init__(self, connection: socket.socket, command: Exec, receiver: Receiver) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._sender = Sender(connection)
        self._exec = command
        self._receiver = receiver
        self._demux = Demux(self._deliver)
        self._header: bytes | None = b""  # None once it is complete
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._size = _SMALL
        self._reading = False
        self._paused = False
        self._over = False
        self._told = False
        self._fresh = True
        self._doubt = b""  # a first frame that may be an error of the engine instead of the command's output
        self._complaint = b""
        self._task: asyncio.Task[None] | None = None
        self._pinging: asyncio.Task[None] | None = None
        self._heartbeat = Heartbeat(command.keepalive_s, self._ask, self._fall_silent, lambda: not self._over)

    async def start(self, version: str) -> None:
        """Start the exec, and upgrade the connection.

        Raises:
            PlaceUnavailable: the engine refused, so nothing ran.
            OutcomeUnknown: it does not answer.
        """
        body = b'{"Detach": false, "Tty": false}'
        head = (
            f"POST /v{version}/exec/{self._exec.id}/start HTTP/1.1\r\nHost: docker\r\n"
            "Content-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._read(on=True)
        self._sender.write(head.encode() + body)
        try:
            async with asyncio.timeout(_START_S):
                await self._started
        except BaseException as error:
            self._told = True
            self._let_go()
            if isinstance(error, TimeoutError):
                raise OutcomeUnknown(f"docker: the engine did not answer within {_START_S:g} s") from None
            raise
        if not self._needs_output:  # otherwise the receiver of the output checks that itself
            self._heartbeat.watch()

    @property
    def _needs_output(self) -> bool:
        return isinstance(self._receiver, OutputReceiver) and self._receiver.needs_output

    def _ask(self) -> None:
        self._pinging = self._loop.create_task(self._ping())

    async def _ping(self) -> None:
        with contextlib.suppress(PlaceUnavailable):  # the next request may succeed
            await self._exec.ping()
            self._heartbeat.record_activity()

    def _fall_silent(self) -> None:
        self._tell(Exit(lost=f"the engine was silent for {self._heartbeat.patience_s:g} s"))

    def _readable(self) -> None:
        try:
            data = self._socket.recv(self._size)
            while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() and (more := self._rest()):
                data += more
        except WAIT:
            return
        except OSError as error:
            self._wait_until_ended(error.strerror or str(error))
            return
        if not data:
            self._wait_until_ended("")
            return
        self._heartbeat.record_activity()
        if len(data) < _SMALL:
            self._size = max(_SMALL, self._size // 2)
        else:
            self._size = _READ
            data += self._rest()
        if self._header is not None:
            data = self._take_header(data)
        if data:
            self._demux.feed(data)

    def _rest(self) -> bytes:
        """Read more at once: a fast stream often has the next frame, which saves a turn of the event loop."""
        try:
            return self._socket.recv(_READ)
        except OSError:  # nothing yet, or a break that the next read reports
            return b""

    def _take_header(self, data: bytes) -> bytes:
        """Parse the HTTP response; return the bytes after it, which belong to the stream."""
        header, end, rest = ((self._header or b"") + data).partition(b"\r\n\r\n")
        status = header.split(b"\r\n", 1)[0].split(b" ")
        code = int(status[1]) if len(status) > 1 and status[1].isdigit() else 0
        if not end:
            self._header = header
            if len(header) > _LONGEST_HEADER:
                self._refuse(0, "the answer is not an engine's")
        elif code not in _BEGUN:
            self._refuse(code, _message(rest))
        else:
            self._header = None
            self._started.set_result(None)
            return rest
        return b""

    def _refuse(self, code: int, said: str) -> None:
        self._read(on=False)
        self._started.set_exception(Refused("docker: the engine did not start the command", code, said))

    def _deliver(self, kind: int, data: bytes, whole: bool) -> None:  # noqa: FBT001  Demux's own word
        if kind == ENGINE:
            self._complaint += data
            return
        self._settle()
        if self._fresh:
            self._fresh = False
            if whole and kind != STDERR and data.endswith(b"\r\n"):
                self._doubt = data
                self._task = self._loop.create_task(self._look())
                return
        if not self._told:
            (self._receiver.on_stderr if kind == STDERR else self._receiver.on_data)(data)

    async def _look(self) -> None:
        """Deliver held output as soon as the engine confirms that the command was started."""
        if await self._exec.began():
            self._settle()

    def _settle(self) -> None:
        data, self._doubt = self._doubt, b""
        if data and not self._told:
            self._receiver.on_data(data)

    def _wait_until_ended(self, broken: str) -> None:
        self._over = True
        self._read(on=False)
        self._sender.stop()
        if self._started.done():
            self._task = self._loop.create_task(self._conclude(self._task, broken))
        else:
            self._started.set_exception(PlaceUnavailable("docker: the engine closed the connection"))

    async def _conclude(self, before: asyncio.Task[None] | None, broken: str) -> None:
        if before is not None:
            await asyncio.wait([before])
        if not broken and self._needs_output:
            broken = "it ended before the command"
        exit = await self._exec.outcome(broken)
        if self._exec.began_never:
            said = (self._complaint + self._doubt).decode("utf-8", "replace").strip()
            exit = Exit(lost=f"the engine could not start it: {said}")
        else:
            self._settle()
        self._tell(exit)

    def _tell(self, exit: Exit) -> None:
        if not self._told:
            self._told = True
            self._let_go()
            if not exit.lost and self._demux.partial:  # the engine sends whole frames, so the rest is missing
                exit = Exit(lost="the connection to the engine ended in the middle of its output")
            self._receiver.on_close(exit)

    def _let_go(self) -> None:
        self._over = True
        self._heartbeat.stop()
        self._read(on=False)
        self._sender.stop()
        self._socket.close()

    def _read(self, *, on: bool) -> None:
        if on and not self._reading:
            self._loop.add_reader(self._socket, self._readable)
        elif self._reading and not on:
            self._loop.remove_reader(self._socket)
        self._reading = on

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes for standard input, and send as many as the engine accepts at once."""
        self._sender.write(*parts)

    def write_eof(self) -> None:
        """Close standard input after what is queued."""
        self._sender.write_eof()

    @property
    def unsent(self) -> int:
        """Return the number of bytes that the engine has not taken."""
        return self._sender.unsent

    async def drain(self) -> None:
        """Wait until at most 1 MiB is queued, or the engine accepts no more."""
        await self._sender.drain()

    def pause(self) -> None:
        """Stop reading; the engine, and then the command's pipe, stop the producer."""
        self._paused = True
        self._demux.hold()
        self._read(on=False)

    def resume(self) -> None:
        """Continue reading."""
        if self._paused:
            self._paused = False
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self._paused:
            self._demux.release()
        if not (self._paused or self._over):  # delivering held output may have paused the reader again
            self._read(on=True)

    def abandon(self) -> None:
        """Close the connection at once. The engine then closes the command's input, and ends no process."""
        if self._task is not None:
            self._task.cancel()
        self._tell(Exit(lost="the channel was closed here"))

    def kill(self) -> None:
        """Close the connection; engines cannot end an exec, so the program ends with its input or its container."""
        self.abandon()


def _message(body: bytes) -> str:
    """Return the message in the engine's refusal."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, TypeError, LookupError):
        return body[:300].decode("utf-8", "replace").strip()
