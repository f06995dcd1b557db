"""Sandboxes that are kept ready: each takes one run, and what changed meanwhile is never run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry.content import ContentChanged
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run.warm import WarmRunner
from hermes_exec_backends.sandbox.control import wait_readable
from tests.rigs.processes import children
from tests.rigs.skill_makers import registered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)  # the first run of a policy proves it
MAIN = "scripts/main.py"
WHERE = """
import os
def run(a: int, b: int) -> list:
    found = os.listdir('/app/data')
    open('/app/data/left', 'w').close()
    print(a, b)
    return [a + b, found, os.readlink('/proc/self/ns/pid')]
"""


@pytest.fixture
def warm(
    require: Require, home: RegistryHome, tmp_path: Path
) -> Callable[[Callable[[WarmRunner], Awaitable[Any]]], Any]:
    """Do something with a runner that has sandboxes of a skill ready."""
    require("bwrap", "makes the sandbox")
    registered(home, tmp_path, files={MAIN: WHERE})

    async def main(work: Callable[[WarmRunner], Awaitable[Any]]) -> Any:
        async with WarmRunner(Registry(home), ready=1) as runner:
            await runner.prepare("add-numbers")
            return await work(runner)

    return lambda work: asyncio.run(main(work))


def namespaces(runner: WarmRunner) -> list[str]:
    """Of the sandboxes that are ready."""
    return [os.readlink(f"/proc/{each.run.facts.pid}/ns/pid") for each in runner.sandboxes()]


def test_a_call_takes_the_sandbox_that_is_ready_and_the_next_one_another(warm: Any) -> None:
    async def work(runner: WarmRunner) -> None:
        ready = namespaces(runner)
        used = runner.sandboxes()[0].run.facts.pid
        first = await runner.run("add-numbers", {"a": 1, "b": 2})
        second = await runner.run("add-numbers", {"a": 3, "b": 4})
        assert (first.result[:2], second.result[:2]) == ([3, []], [7, []])
        assert [first.result[2]] == ready
        assert used not in [each.run.facts.pid for each in runner.sandboxes()]
        assert (first.logs, second.logs, second.counts.runs) == ("1 2\n", "3 4\n", 2)

    warm(work)


def test_what_was_used_is_made_up_for(warm: Any) -> None:
    async def work(runner: WarmRunner) -> None:
        await runner.run("add-numbers", {"a": 1, "b": 2})
        await runner.wait_until_filled()
        (ready,) = namespaces(runner)
        assert (await runner.run("add-numbers", {"a": 1, "b": 2})).result[2] == ready

    warm(work)


def test_a_change_after_it_was_made_ready_is_refused(warm: Any, home: RegistryHome) -> None:
    async def work(runner: WarmRunner) -> None:
        version = runner.registry.version("add-numbers")
        file = home.content / version.digest / MAIN
        file.write_bytes(file.read_bytes() + b"\n")
        with pytest.raises(ContentChanged):
            await runner.run("add-numbers", {"a": 1, "b": 2})
        with pytest.raises(Refused, match="quarantine"):
            await runner.run("add-numbers", {"a": 1, "b": 2})

    warm(work)


def test_a_copy_that_was_changed_is_not_used(warm: Any) -> None:
    async def work(runner: WarmRunner) -> None:
        (kept,) = runner.sandboxes()
        (ready,) = namespaces(runner)
        (kept.tree / MAIN).write_text("def run(a, b):\n    return ['evil', [], '']\n")
        found = await runner.run("add-numbers", {"a": 1, "b": 2})
        assert found.result[0] == 3
        assert found.result[2] != ready

    warm(work)


def test_an_archived_skill_is_refused_though_it_is_ready(warm: Any) -> None:
    async def work(runner: WarmRunner) -> None:
        runner.registry.mark("archived", "add-numbers")
        with pytest.raises(Refused, match="archived"):
            await runner.run("add-numbers", {"a": 1, "b": 2})

    warm(work)


def test_a_sandbox_that_ended_meanwhile_is_not_used(warm: Any) -> None:
    async def work(runner: WarmRunner) -> None:
        (kept,) = runner.sandboxes()
        kept.run.kill()
        await wait_readable(kept.run.first)
        assert (await runner.run("add-numbers", {"a": 1, "b": 2})).result[:2] == [3, []]

    warm(work)


def test_nothing_is_left_of_a_skill_whose_place_another_took_while_it_was_made_ready(
    require: Require, home: RegistryHome, tmp_path: Path
) -> None:
    require("bwrap", "makes the sandbox")
    names = ["add-numbers", "add-others", "add-more"]
    for name in names:
        registered(home, tmp_path / name, name=name, files={MAIN: WHERE})

    async def work(pause_s: float) -> None:
        before = set(children(os.getpid()))
        async with WarmRunner(Registry(home), ready=1, skills=2) as runner:
            await runner.prepare(names[0])
            await runner.prepare(names[1])
            other = asyncio.create_task(runner.prepare(names[2]))
            await asyncio.sleep(pause_s)
            await runner.run(names[0], {"a": 1, "b": 2})
            await other
            await runner.wait_until_filled()
        assert set(children(os.getpid())) == before

    for moment in range(8):
        asyncio.run(work(0.02 * moment))


def test_nothing_is_made_ready_once_it_is_closed(warm: Any) -> None:
    async def work(runner: WarmRunner) -> None:
        before = set(children(os.getpid())) - {each.run.facts.pid for each in runner.sandboxes()}
        running = asyncio.create_task(runner.run("add-numbers", {"a": 1, "b": 2}))
        await asyncio.sleep(0)
        await runner.close()
        await running
        await runner.wait_until_filled()
        assert not runner.sandboxes()
        assert len(set(children(os.getpid()))) < max(len(before), 1)

    warm(work)


def test_nothing_is_left_when_it_is_closed(warm: Any) -> None:
    kept: list[Any] = []

    async def work(runner: WarmRunner) -> None:
        kept.extend(runner.sandboxes())

    warm(work)
    assert [each.tree.exists() for each in kept] == [False]
    assert not os.path.exists(f"/proc/{kept[0].run.facts.pid}")


def test_what_its_environment_is_does_not_depend_on_being_ready(warm: Any, home: RegistryHome, tmp_path: Path) -> None:
    text = """
import os, sys, signal, locale
def run(a: int, b: int) -> dict:
    return {
        'environ': dict(os.environ), 'argv': sys.argv, 'flags': str(sys.flags), 'path': sys.path,
        'main': sorted(name for name in vars(sys.modules['__main__']) if not name.startswith('__')),
        'signals': [str(signal.getsignal(each)) for each in (signal.SIGPIPE, signal.SIGXFSZ)],
        'open': sorted(os.listdir('/proc/self/fd')), 'cwd': os.getcwd(), 'mask': os.umask(0o22), 'ids': os.getresuid(),
        'parent': os.getppid(), 'confined': [name for name in sys.modules if name.startswith('confined')],
    }
"""
    registered(home, tmp_path / "2", files={MAIN: text})

    async def work(runner: WarmRunner) -> None:
        await runner.prepare("add-numbers")
        outcomes = [await runner.run("add-numbers", {"a": 1, "b": 2}) for _ in range(2)]
        found: list[dict[str, Any]] = [{**each.result, "ids": 0} for each in outcomes]
        assert found[0] == found[1]
        assert found[0]["confined"] == []
        assert found[0]["environ"]["HOME"] == "/app/data"
        assert found[0]["open"] == ["0", "1", "2", "3", "4"]  # the result's own, and the one that lists them

    warm(work)
