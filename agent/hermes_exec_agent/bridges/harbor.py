"""Targets as environments of Harbor, and our agent as one of its agents; Harbor needs Python 3.12 or newer.

``harbor run -e hermes_exec_agent.bridges.harbor:HermesExecEnvironment --ek target=docker`` creates the container of
each task, and any other target is used as it is. ``-a hermes_exec_agent.bridges.harbor:HermesAgent`` works in it by our
Terminal. A command that timed out is never run again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hermes_exec
from hermes_exec.backend import get_resource_id
from hermes_exec.config.check import profile_from_table
from hermes_exec.config.paths import write_private
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.observe.redact import Redactor
from hermes_exec.terminal.opening import open_plan, plan_open
from hermes_exec_agent.batch.agents import AgentEnd, Work, hold_conversation
from hermes_exec_agent.batch.run_folder import find_version
from hermes_exec_agent.batch.settings import TOOLS
from hermes_exec_agent.batch.trajectories.atif_form import list_documents
from hermes_exec_agent.batch.trajectories.reading import read_conversation
from hermes_exec_agent.bridges._peers import Peer
from hermes_exec_agent.bridges._users import UserSwitch, UserUnavailable
from hermes_exec_agent.models.settings import load_models
from hermes_exec_agent.runtime.events.log import EventLog

with Peer("harbor", "0.24.0"):
    from harbor.agents.base import BaseAgent
    from harbor.environments.base import BaseEnvironment, ExecResult
    from harbor.environments.capabilities import EnvironmentCapabilities
    from harbor.environments.definition import require_agent_environment_definition
    from harbor.models.task.config import NetworkMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbor.models.agent.context import AgentContext

    from hermes_exec import Terminal
    from hermes_exec.config.profile import Profile

_DOCKER = "docker"
_MACHINES = frozenset({"local", "ssh", "slurm"})
"""Kinds of targets that are not containers; tasks of Harbor write below the root."""
_STEP_S = 60.0
_LEASE_S = 60.0
_OUTPUT = 16 << 20
_log = logging.getLogger("hermes_exec.agent")


class HermesExecEnvironment(BaseEnvironment):
    """One open target."""

    def __init__(self, *args: Any, target: str = _DOCKER, **options: Any) -> None:
        """``target`` is a target, or a profile of ``hermes.toml``; `docker` is the container of the task."""
        # The base class checks the capabilities, which depend on the target.
        self._target = target
        self._stack = AsyncExitStack()
        self._terminal: Terminal | None = None
        self._resource = ""
        self._folder = ""
        self._shell = "/bin/sh"
        self._users: dict[str, Terminal] = {}
        super().__init__(*args, **options)

    @staticmethod
    def type() -> str:
        """Return the name of the kind of environment."""
        return "hermes_exec"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What an environment can do: a container of the task has no network if the task says so."""
        return EnvironmentCapabilities(disable_internet=self._target == _DOCKER, mounted=False)

    def _validate_definition(self) -> None:
        if self._target == _DOCKER:
            require_agent_environment_definition(
                self.environment_dir, docker_image=self.task_env_config.docker_image
            )  # fmt: skip
            if (self.environment_dir / "docker-compose.yaml").exists():
                raise ValueError("tasks with docker-compose.yaml need an environment of Harbor's own")

    @property
    def terminal(self) -> Terminal:
        """The open target."""
        if self._terminal is None:
            raise RuntimeError(f"{self._target}: the target is not open")
        return self._terminal

    @property
    def target(self) -> str:
        """The target's name."""
        return self._target

    @property
    def folder(self) -> str:
        """The folder of the task."""
        return self._folder

    def _create_profile(self, *, force_build: bool) -> Profile | str:
        """Return the container of the task; the target itself if it is another one."""
        if self._target != _DOCKER:
            return self._target
        config, dockerfile = self.task_env_config, self.environment_dir / "Dockerfile"
        network = "none" if self._network_policy.network_mode == NetworkMode.NO_NETWORK else "bridge"
        table: dict[str, Any] = {"type": _DOCKER, "network": network}
        if config.docker_image and not (force_build and dockerfile.exists()):
            table["image"] = config.docker_image
        else:
            table |= {"dockerfile": str(dockerfile.absolute()), "context": str(self.environment_dir.absolute())}
        if (cpus := self._effective_cpus) is not None:
            table["cpus"] = float(cpus)
        if (memory := self._effective_memory_mb) is not None:
            table["memory"] = memory << 20
        return profile_from_table(table, f"the environment {self.environment_name}")

    async def start(self, force_build: bool) -> None:  # noqa: FBT001  the form of Harbor
        """Create or open the target; see `BaseEnvironment.start`.

        Raises:
            RuntimeError: it cannot be opened, or is not a container.
        """
        try:
            plan = plan_open(self._create_profile(force_build=force_build), lease_s=_LEASE_S)
            opened = await open_plan(plan, plan.create_audit(wanted=None))
            self._terminal = await self._stack.enter_async_context(opened)
            if opened.kind in _MACHINES:
                raise UsageError(f"{self._target}: tasks of Harbor need a container", remedy="--ek target=docker")
            self._resource = get_resource_id(plan.backend)
            bash = await opened.run("command -v bash", timeout=_STEP_S)
            self._shell = bash.stdout_text.strip() or self._shell
            await self._find_folder(opened)
        except HermesError as error:
            await self._stack.aclose()
            raise RuntimeError(str(error)) from None  # Harbor prints the whole chain
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def _find_folder(self, terminal: Terminal) -> None:
        """Find the folder of the task: its own setting, or the working folder of the image."""
        self._folder = self.task_env_config.workdir or ""
        if self._folder:
            await terminal.run(["mkdir", "-p", "--", self._folder], timeout=_STEP_S, cwd="/", check=True)
            return
        first = await terminal.run(["readlink", "/proc/1/cwd"], timeout=_STEP_S, cwd="/")
        is_own = self._resource and first.ok
        self._folder = first.stdout_text.rstrip("\n") if is_own else (await terminal.run("pwd -P")).stdout_text.strip()

    async def stop(self, delete: bool) -> None:  # noqa: FBT001  the form of Harbor
        """Close the target, with all that runs there; ``delete`` removes a container that was created."""
        if not delete and self._terminal is not None:
            await self._terminal.close(keep=True)
        await self._stack.aclose()

    async def open_as(self, user: str | None) -> tuple[Terminal, list[str]]:
        """Return a terminal for commands of a user, and the beginning of each command.

        Raises:
            RuntimeError: commands cannot run as that user.
        """
        if user is None:
            return self.terminal, []
        try:
            if self.terminal.kind != _DOCKER or not self._resource:
                return self.terminal, await UserSwitch(self.terminal).prefix(user)
            if user not in self._users:
                profile = profile_from_table(
                    {"type": _DOCKER, "container": self._resource, "user": user}, f"the user {user}"
                )
                self._users[user] = await self._stack.enter_async_context(
                    hermes_exec.open(profile, lease_s=_LEASE_S)
                )  # fmt: skip
        except (HermesError, UserUnavailable) as error:
            raise RuntimeError(f"{self._target}: no commands as the user {user!r}: {error}") from error
        return self._users[user], []

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command; see `BaseEnvironment.exec`.

        Raises:
            RuntimeError: it was stopped at its time limit, or the target failed.
        """
        chosen = self._resolve_user(user)
        terminal, prefix = await self.open_as(None if chosen is None else str(chosen))
        argv = [*prefix, self._shell, "-c", command]
        try:
            done = await terminal.run(
                argv, cwd=cwd or self._folder, env=self._merge_env(env), timeout=timeout_sec, max_output=_OUTPUT
            )
        except HermesError as error:
            raise RuntimeError(str(error)) from error
        if done.timed_out:
            raise RuntimeError(f"the command was stopped after {timeout_sec} seconds")
        if (emit := self._output_callback()) is not None:
            for text, stream in ((done.stdout_text, "stdout"), (done.stderr_text, "stderr")):
                if text:
                    await emit(text, stream)
        return ExecResult(stdout=done.stdout_text, stderr=done.stderr_text, return_code=done.shell_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the target; see `BaseEnvironment.upload_file`."""
        terminal, _ = await self._open_for_files()
        await terminal.upload(Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the content of a folder into the target; see `BaseEnvironment.upload_dir`."""
        terminal, _ = await self._open_for_files()
        await terminal.run(["mkdir", "-p", "--", target_dir], timeout=_STEP_S, cwd="/", check=True)
        await terminal.upload(Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file of the target to this machine; see `BaseEnvironment.download_file`."""
        terminal, _ = await self._open_for_files()
        await terminal.download(source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the content of a folder of the target; see `BaseEnvironment.download_dir`."""
        terminal, _ = await self._open_for_files()
        await asyncio.to_thread(Path(target_dir).mkdir, parents=True, exist_ok=True)
        await terminal.download(source_dir, Path(target_dir))

    async def _open_for_files(self) -> tuple[Terminal, list[str]]:
        """Return a terminal that may write below the root."""
        is_container = self.terminal.kind == _DOCKER and self._resource
        return await self.open_as("0") if is_container else (self.terminal, [])


class HermesAgent(BaseAgent):
    """Our agent, which works in a `HermesExecEnvironment`.

    Its conversation is in ``conversations.sqlite`` of its logs, and as ``trajectory.json`` in the form of ATIF.
    ``-m NAME`` is a model of ``hermes.toml``; without it, the configured one.
    """

    SUPPORTS_ATIF = True

    def __init__(
        self, logs_dir: Path, *args: Any, steps: int = 90, time_limit_s: float = 3600.0, **options: Any
    ) -> None:
        """``steps`` are replies of the model; ``time_limit_s`` is of the whole conversation."""
        super().__init__(logs_dir, *args, **options)
        self._steps = int(steps)
        self._time_limit_s = float(time_limit_s)

    @staticmethod
    def name() -> str:
        """Return the name of the agent."""
        return "hermes-exec"

    def version(self) -> str | None:
        """Return the version of this program."""
        return find_version()

    async def setup(self, environment: BaseEnvironment) -> None:
        """Check that the environment is a `HermesExecEnvironment`; see `BaseAgent.setup`."""
        if not isinstance(environment, HermesExecEnvironment):
            raise TypeError("HermesAgent needs -e hermes_exec_agent.bridges.harbor:HermesExecEnvironment")
        if self.mcp_servers:
            raise ValueError("HermesAgent takes no servers of tools")

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Work on the instruction; see `BaseAgent.run`."""
        if not isinstance(environment, HermesExecEnvironment):
            raise TypeError("HermesAgent needs HermesExecEnvironment")
        user = environment.default_user
        terminal, prefix = await environment.open_as(None if user is None else str(user))
        if prefix:
            raise RuntimeError(f"{environment.target}: the agent cannot work as the user {user!r} there")
        models = load_models()
        if self.model_name:
            models = models.with_main(self.model_name)
        work = Work(
            terminal, environment.target, environment.folder, self.session_id or "harbor", instruction, TOOLS,
            self._steps, self._time_limit_s,
        )  # fmt: skip
        end = AgentEnd()
        path = Path(self.logs_dir) / "conversations.sqlite"
        try:
            with EventLog(path, redactor=Redactor(models.secrets)) as log:
                try:
                    await hold_conversation(work, models, log, end, parent="harbor")
                finally:
                    self._write_trajectory(log, end.conversation, models.main.name)
        finally:
            await models.close()
            self._describe(end, context)

    def _describe(self, end: AgentEnd, context: AgentContext) -> None:
        if end.usage is not None:
            context.n_input_tokens, context.n_output_tokens = end.usage.prompt, end.usage.completion
            context.n_cache_tokens, context.cost_usd = end.usage.cached, end.usage.cost
        context.metadata = {"outcome": end.outcome, "steps": end.steps, "calls": end.calls}

    def _write_trajectory(self, log: EventLog, id: str, model: str) -> None:
        """Write the conversation as ATIF: a file for the first segment, and one for each continuation."""
        if not id:
            return
        try:
            documents = list_documents(read_conversation(log, log.children(), id), id, model)
            self._write_documents(documents)
        except (OSError, HermesError) as error:  # the log has all of it, and the task has its own end
            _log.warning("trajectory.json was not written: %s", error)

    def _write_documents(self, documents: Sequence[dict[str, Any]]) -> None:
        names = ["trajectory.json", *(f"trajectory.cont-{number}.json" for number in range(1, len(documents)))]
        for place, (name, document) in enumerate(zip(names, documents, strict=True), 1):
            if place < len(names):
                document["continued_trajectory_ref"] = names[place]
            write_private(Path(self.logs_dir) / name, json.dumps(document, indent=1).encode())
