"""Conversations' contexts over real terminals, in every place that this machine has."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import Unsupported
from hermes_exec_agent.models.messages import ToolCall
from hermes_exec_agent.tools.dispatch import perform
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.daytona import DaytonaBackend
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.modal import ModalBackend
from hermes_exec_backends.profiles import BubblewrapProfile, SingularityProfile, SlurmProfile
from hermes_exec_backends.singularity import SingularityBackend
from hermes_exec_backends.slurm import SlurmBackend
from hermes_exec_backends.ssh import SshBackend
from tests.conftest import require_part
from tests.rigs import apptainer, daytona_rig, modal, slurm
from tests.rigs.docker_engine import BUSYBOX, engine
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence

    from hermes_exec.backend import Backend
    from hermes_exec_agent.tools.tool import Tool
    from tests.rigs.daytona_server import Daytona

PLACES = ("local", "bubblewrap", "ssh", "docker", "singularity")
ALL_PLACES = (*PLACES, "slurm", "modal", "daytona")
"""Those that take long to be had, too."""


class Nobody:
    """Nobody is there."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        raise Unsupported("nobody is there")

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        raise Unsupported("nobody is there")


@dataclass
class Somebody:
    """Answers as they were told to, and remembers what they were asked."""

    says: bool = True
    answer: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        self.asked.append((tool, summary))
        return self.says

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        self.asked.append(("clarify", question))
        return self.answer


@dataclass
class Agent:
    """A conversation without a model: calls are given by a test."""

    context: Context
    tools: Sequence[Tool]

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.raw(tool, json.dumps(arguments))

    async def raw(self, name: str, arguments: str) -> dict[str, Any]:
        envelope = await perform(self.tools, ToolCall("1", name, arguments), self.context)
        told: dict[str, Any] = json.loads(envelope.text())
        return told


Agents = "Callable[..., AbstractAsyncContextManager[Agent]]"


@asynccontextmanager
async def agent_in(backend: Backend | str, person: Any = None, **approvals: Any) -> AsyncGenerator[Agent]:
    async with hermes_exec.open(backend) as terminal:
        target = backend if isinstance(backend, str) else terminal.target
        allowed = Approvals(**approvals) if approvals else Approvals("allow")
        context = Context(terminal, target, person or Nobody(), "test", model="scripted", approvals=allowed)
        try:
            yield Agent(context, create_tools(context))
        finally:
            await context.close()


@pytest.fixture(scope="module")
def sshd() -> Generator[Sshd]:
    with Sshd() as sshd:
        yield sshd


@pytest.fixture(scope="module")
def cluster() -> Generator[slurm.Cluster]:
    with slurm.cluster() as running:
        yield running


@pytest.fixture(scope="module")
def daytona() -> Generator[Daytona]:
    yield from daytona_rig.checked()


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Backend]:
    """Makes the backend of the place that a test is parametrized with."""
    match request.param:
        case "local":
            return LocalBackend
        case "bubblewrap":
            require_part("bwrap", "makes the sandbox")
            return lambda: BubblewrapBackend(BubblewrapProfile())
        case "ssh":
            sshd: Sshd = request.getfixturevalue("sshd")
            return lambda: SshBackend(sshd.profile())
        case "docker":
            return lambda: DockerBackend(engine().profile())
        case "busybox":
            return lambda: DockerBackend(engine().profile(BUSYBOX))
        case "slurm":
            cluster: slurm.Cluster = request.getfixturevalue("cluster")
            return lambda: SlurmBackend(SlurmProfile(memory=1 << 30, lease_s=60.0), cluster.here)
        case "modal":
            modal.server()
            return lambda: ModalBackend(modal.profile())
        case "daytona":
            service: Daytona = request.getfixturevalue("daytona")
            return lambda: DaytonaBackend(daytona_rig.profile(service))
        case _:
            tree = apptainer.tree(tmp_path_factory.mktemp("tree"))
            return lambda: SingularityBackend(SingularityProfile(image=str(tree)))
