"""Changes of commands in a container, outside of a git work tree, are rolled back by a snapshot of the container."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import Unsupported
from hermes_exec.terminal.copies import TargetCopy
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.runtime import Conversation
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools import file_checkpoints
from hermes_exec_agent.tools.file_checkpoints import FileCheckpoints
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from hermes_exec_backends.docker import DockerBackend, backend, cleanup
from tests.rigs.bounded import within
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import BUSYBOX, DEBIAN
from tests.runtime.conftest import Nobody

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.rigs.docker_engine import Engine

leave_out("starts an engine")

LIST = "cd /data && ls -la --time-style=+ . | tail -n +2 && cat kept changed* gone* 2>/dev/null; readlink link"
CHANGE = (
    "cd /data && echo new > 'changed file' && rm gone && mkdir -p a/b && echo x > a/b/c && "
    "chmod 755 kept && ln -sfn /etc link && sleep 0"
)


def test_changes_of_commands_in_a_container_are_rolled_back(
    dock: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        go = ask(("terminal", {"command": "cd /data"}))
        replies = [go, say("There."), ask(("terminal", {"command": CHANGE})), say("Done.")]
        replies += [ask(("terminal", {"command": "echo other > '/data/changed file'"})), say("Done.")]
        async with hermes_exec.open(DockerBackend(dock.profile(DEBIAN)), audit=False) as terminal:
            setup = "mkdir /data && cd /data && echo old > 'changed file' && echo gone > gone && echo 1 > kept"
            await terminal.run(f"{setup} && ln -s /usr link", check=True)
            before = (await terminal.run(LIST)).stdout
            context = Context(terminal, terminal.target, Nobody(), "", approvals=Approvals("allow"))
            context.checkpoints = FileCheckpoints(terminal)
            context.tools = create_tools(context)
            with EventLog(tmp_path / "log.sqlite") as log:
                models = Models(ScriptedModel(replies))
                talk = Conversation(models=models, tools=context.tools, context=context, log=log)
                await talk.begin()
                await talk.ask("go there")
                await talk.ask("change it")
                assert (await terminal.run(LIST)).stdout != before
                _, step = await talk.list_steps()
                assert step.list_uncovered() == []
                assert sorted(path.removeprefix("/data/") for path in step.paths) == [
                    "a/b/c", "changed file", "gone", "kept", "link",
                ]  # fmt: skip
                assert dock.client.images("hermes-exec-copy") == []
                await talk.rollback(2)
                assert (await terminal.run(LIST)).stdout == before
                await talk.rollback(3)
                assert (await terminal.run("cat '/data/changed file'")).stdout == b"new\n"
                monkeypatch.setattr(file_checkpoints, "_MOST_BYTES", 3)
                await talk.ask("once more")
                (why,) = (await talk.list_steps())[-1].list_uncovered()
                assert "more than 0 MiB changed" in why
                assert dock.client.images("hermes-exec-copy") == []
                await context.close()

    within(120)(work())


def test_the_image_of_a_copy_is_not_left(dock: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    box: Any = DockerBackend(dock.profile(BUSYBOX))
    commit: Callable[..., Awaitable[str]] = box.snapshot

    def list_images() -> list[object]:
        return list(dock.client.images("hermes-exec-copy"))

    async def work() -> None:
        begun = asyncio.Event()

        async def snapshot(name: str | None = None) -> str:
            begun.set()
            return await commit(name)

        monkeypatch.setattr(box, "snapshot", snapshot)
        async with hermes_exec.open(box, audit=False) as terminal:
            await terminal.run("dd if=/dev/zero of=/large bs=1M count=2", check=True)
            monkeypatch.setattr(backend, "_MOST_COPIED", 1 << 20)
            with pytest.raises(Unsupported, match="more than 1 MiB"):
                await TargetCopy.take(terminal)
            monkeypatch.setattr(backend, "_MOST_COPIED", 1 << 30)
            taking = asyncio.create_task(TargetCopy.take(terminal))
            await begun.wait()
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            assert list_images() == []
            await TargetCopy.take(terminal)  # by a process that is killed
            assert await cleanup.reap(box._engine) == []
            monkeypatch.setattr(cleanup, "_COPY_S", -1)
            (removed,) = await cleanup.reap(box._engine)
            assert (removed.target.rpartition(":")[0], removed.left) == ("docker:hermes-exec-copy", "")
            assert list_images() == []

    within(120)(work())
