"""One container as the engine knows it: execs in it, how they ended, and whether it lives."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Exit
from hermes_exec.errors import PlaceGone, PlaceUnavailable
from hermes_exec_backends.docker.channel import ExecChannel
from hermes_exec_backends.docker.engine import SOON_S
from hermes_exec_backends.docker.failures import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Channel, Receiver
    from hermes_exec_backends.docker.engine import Engine

_NOT_FOUND = 404
_KILLED = 137
_NO_PROGRAM = (126, 127)
_PAUSED = "the container is paused"
_PATIENCE_S = 2.0
"""Seconds for an exec to end after its connection broke; one that goes on is then lost to us."""
_LATER_S = 0.1


class Container:
    """A container that is there, or was."""

    def __init__(self, engine: Engine, id: str, user: str | None = None) -> None:
        self.id = id
        self._engine = engine
        self._user = user

    async def spawn(self, argv: Sequence[str | bytes], receiver: Receiver, env: Mapping[str, str]) -> Channel:
        """Start a program in it.

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
        """All that the engine knows of it.

        Raises:
            Refused: with status 404 when it is gone.
            PlaceUnavailable: the engine does not answer.
        """
        found: dict[str, Any] = await self._engine.call(
            f"docker: container {self.id[:12]}", lambda client: client.inspect_container(self.id), SOON_S
        )
        return found

    async def death(self) -> str:
        """How it died, in words; empty while it lives.

        Raises:
            PlaceUnavailable: the engine does not say.
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
        """Kill and remove it, with its anonymous volumes.

        Raises:
            Refused: with status 404 when it is gone, 409 when somebody else is removing it.
        """
        await self._engine.call(
            f"docker: container {self.id[:12]}",
            lambda client: client.remove_container(self.id, v=True, force=True),
            SOON_S,
        )

    async def signal(self, name: str) -> None:
        """Send a signal to its first process.

        Raises:
            PlaceUnavailable: it does not run, or the engine does not answer.
        """
        what = f"docker: container {self.id[:12]}"
        await self._engine.call(what, lambda client: client.kill(self.id, signal=name), SOON_S)


class Exec:
    """One program that was started in a container, or not quite."""

    def __init__(self, engine: Engine, container: Container, id: str) -> None:
        self.id = id
        self.began_never = False
        """True once the engine has said that the program could not be started."""
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
        """Whether the program was started; waits until the engine knows."""
        pause = 0.001
        while True:
            try:
                state = await self._inspect()
            except PlaceUnavailable:
                return True  # nothing says that it was not
            if state.get("Pid") or not state.get("Running"):
                return not self.began_never
            pause = min(pause * 2, 0.1)
            await asyncio.sleep(pause)

    async def outcome(self, broken: str) -> Exit:
        """How it ended, once it has; ``broken`` says how its connection broke, if it did."""
        try:
            return await self._ended(broken)
        except PlaceUnavailable as error:
            return Exit(lost=error.what)

    async def _ended(self, broken: str) -> Exit:
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
            await asyncio.sleep(_LATER_S)  # a dying container's first process is the last one to go
        if code is None or code >= _NO_PROGRAM[0]:
            death = await self._container.death()
            if death:
                return Exit(lost=death)
        return Exit(lost="the engine does not know how it ended") if code is None else Exit(code=int(code))


def _text(word: str | bytes) -> str:
    """A word as the engine takes it, which is JSON and so text."""
    text = os.fsdecode(word)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PlaceUnavailable("docker: an engine takes only words and variables that are UTF-8") from None
    return text
