"""Targets as sandboxes of inspect_ai: ``sandbox=hermes_sandbox("docker:python:3.12")``, or ``("hermes_exec", "box")``.

The package has an entry point of the group ``inspect_ai``, so that inspect finds this module by itself. A sample has
one terminal for each named environment. A timed-out command is never run again, whatever ``timeout_retry`` asks for.
"""

from __future__ import annotations

import errno as errors
import os
import posixpath
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, overload

from pydantic import BaseModel

import hermes_exec
from hermes_exec.errors import PlaceError, TransferError, UsageError
from hermes_exec_agent.bridges._peers import Peer
from hermes_exec_agent.bridges._users import UserSwitch, UserUnavailable

with Peer("inspect-ai", "0.3.285"):
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentLimits,
        SandboxEnvironmentSpec,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )

if TYPE_CHECKING:
    from hermes_exec import Terminal
    from hermes_exec.result import Result

_MACHINES = frozenset({"local", "ssh", "slurm", "bubblewrap"})
"""Kinds of targets whose files outlast a terminal, so that each sample gets a folder of its own."""
_PREFIX = "/tmp/hermes-inspect."  # noqa: S108  its name cannot be guessed
_CREATE = f"umask 077; mktemp -d {_PREFIX}XXXXXXXX"
_CANNOT_RUN = 126
_PREPARE_S = 60.0


class HermesExecConfig(BaseModel, frozen=True, extra="forbid"):
    """The targets of a sample, or profiles of ``hermes.toml``."""

    default: str = "local"
    others: tuple[tuple[str, str], ...] = ()
    """Names of further environments, each with its target."""


def hermes_sandbox(target: str = "local", **more: str) -> SandboxEnvironmentSpec:
    """Return the sandbox of a task: a target, and further ones by name."""
    config = HermesExecConfig(default=target, others=tuple(more.items()))
    return SandboxEnvironmentSpec(type="hermes_exec", config=config)


@sandboxenv(name="hermes_exec")
class HermesExecSandbox(SandboxEnvironment):
    """One open target."""

    def __init__(self, terminal: Terminal, folder: str, stack: AsyncExitStack, *, own_folder: bool) -> None:
        """``folder`` is the working folder of the sample; ``stack`` closes the terminal."""
        super().__init__()
        self.terminal = terminal
        self._folder = folder
        self._stack = stack
        self._own_folder = own_folder
        self._users = UserSwitch(terminal)

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: Any,
        metadata: dict[str, str],  # noqa: ARG003  the form of inspect
    ) -> dict[str, SandboxEnvironment]:
        """Open the targets of a sample."""
        # inspect takes a text for the name of a file, and puts the folder of the task before it.
        if not isinstance(config, HermesExecConfig):
            config = HermesExecConfig(default=posixpath.basename(config)) if config else HermesExecConfig()
        targets = {"default": config.default, **dict(config.others)}
        opened: dict[str, SandboxEnvironment] = {}
        try:
            for name, target in targets.items():
                opened[name] = await cls._open(target)
        except BaseException:
            await cls.sample_cleanup(task_name, config, opened, interrupted=True)
            raise
        return opened

    @classmethod
    async def _open(cls, target: str) -> HermesExecSandbox:
        async with AsyncExitStack() as stack:
            terminal = await stack.enter_async_context(hermes_exec.open(target))
            # A user of a container may not write into the folder of its image.
            command = _CREATE if terminal.kind in _MACHINES else f"if [ -w . ]; then pwd -P; else {_CREATE}; fi"
            found = await terminal.run(command, timeout=_PREPARE_S, check=True)
            folder = found.stdout_text.rstrip("\n")
            return cls(terminal, folder, stack.pop_all(), own_folder=folder.startswith(_PREFIX))
        raise AssertionError  # the context never suppresses

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,  # noqa: ARG003  the form of inspect
        config: Any,  # noqa: ARG003  the same
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,  # noqa: ARG003, FBT001  the same
    ) -> None:
        """Close the targets of a sample, with all that runs there."""
        async with AsyncExitStack() as stack:
            for environment in environments.values():
                stack.push_async_callback(environment.as_type(cls).close)

    async def close(self) -> None:
        """Remove the folder of the sample, and close the terminal."""
        async with self._stack:
            if self._own_folder:
                try:
                    await self.terminal.run(["rm", "-rf", "--", self._folder], timeout=_PREPARE_S, cwd="/")
                except PlaceError:
                    return  # the target is gone, with its files

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,  # noqa: ARG002, FBT001, FBT002  a command that may have run is not run again
        concurrency: bool = True,  # noqa: ARG002, FBT001, FBT002  the target bounds itself
    ) -> ExecResult[str]:
        """Run a command; see `SandboxEnvironment.exec`."""
        try:
            argv = [*(await self._users.prefix(user)), *cmd]
        except UserUnavailable as error:
            raise SandboxUserUnsupportedError(str(error)) from error
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        folder = self._resolve(cwd or ".")
        try:
            done = await self.terminal.run(
                argv, stdin=input, cwd=folder, env=env, timeout=timeout, max_output=limit
            )  # fmt: skip
        except PlaceError as error:
            raise SandboxUnavailableError(str(error)) from error
        except UsageError as error:
            raise FileNotFoundError(errors.ENOENT, str(error), folder) from error
        return self._check(done, timeout)

    def _check(self, done: Result, timeout: int | None) -> ExecResult[str]:
        """Return the result of a command, or raise what inspect expects in its place."""
        if done.timed_out:
            raise TimeoutError(f"the command was stopped after {timeout} s")
        if done.truncated:
            kept = done.stdout_text if "stdout" in done.truncated else done.stderr_text
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, kept)
        if done.exit_code == _CANNOT_RUN and "permission denied" in done.stderr_text.lower():
            raise PermissionError(done.stderr_text)
        return ExecResult(done.ok, done.shell_code, done.stdout_text, done.stderr_text)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, with its folders; see `SandboxEnvironment.write_file`."""
        data = contents.encode() if isinstance(contents, str) else contents
        path = self._resolve(file)
        try:
            await self._refuse_read_only(path)
            await self.terminal.files.write(path, data, parents=True)
        except TransferError as error:
            raise _to_builtin(error, path) from error
        except PlaceError as error:
            raise SandboxUnavailableError(str(error)) from error

    async def _refuse_read_only(self, path: str) -> None:
        """Refuse a file that the user may not write: a write replaces the file, for which its folder counts."""
        if await self._users.is_root():
            return
        argv = ["/bin/sh", "-c", '[ ! -e "$1" ] || [ -w "$1" ]', "sh", path]
        if not (await self.terminal.run(argv, timeout=_PREPARE_S)).ok:
            raise PermissionError(errors.EACCES, os.strerror(errors.EACCES), path)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...  # noqa: FBT002  the form of inspect

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:  # noqa: FBT001, FBT002  the form of inspect
        """Read a file; see `SandboxEnvironment.read_file`."""
        path, limit = self._resolve(file), SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.terminal.files.read(path, 0, limit + 1)
        except TransferError as error:
            raise _to_builtin(error, path) from error
        except PlaceError as error:
            raise SandboxUnavailableError(str(error)) from error
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Return the configuration of a log."""
        return HermesExecConfig(**config)

    def default_polling_interval(self) -> float:
        """Return the seconds between two looks at a service in the target."""
        return 0.2

    def _resolve(self, path: str) -> str:
        return posixpath.join(self._folder, path)


def _to_builtin(error: TransferError, path: str) -> OSError:
    """Return the exception of Python's own that has the number of a failure."""
    return OSError(error.errno or errors.EIO, os.strerror(error.errno or errors.EIO), path)
