"""Several delegated tasks at once, and tasks in the background."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.scripted import ask, say
from hermes_exec_agent.runtime import CallEnded, Delegated
from tests.rigs.processes import alive
from tests.tools.test_tools_delegating import Thinks, conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.runtime import Update

pytestmark = pytest.mark.timeout(120)


def answers(parent: Sequence[Any], child: Callable[[str, Sequence[Message]], Any]) -> list[Any]:
    """The parent's replies one after the other; those of a child by its request and its messages."""
    own = list(parent)

    def answer(messages: Sequence[Message], tools: Any) -> Any:
        if any(tool.name == "delegate_task" for tool in tools):
            reply = own.pop(0)
            return reply(messages) if callable(reply) else reply
        request = next(each.content for each in messages if each.role == "user")
        return child(request, messages)

    return [answer] * 100


async def until(true: Callable[[], object]) -> None:
    """Wait for files that commands make."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


def results(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The results of the parent's calls, without the notices after them."""
    return [json.JSONDecoder().raw_decode(each.content)[0] for each in messages if each.role == "tool"]


def test_three_tasks_run_at_once_each_in_a_shell_of_its_own(tmp_path: Path) -> None:
    def child(request: str, messages: Sequence[Message]) -> Any:
        if messages[-1].role == "tool":
            return say(f"{request} is done: {results(messages)[-1]['output'].strip()}")
        wait = f"v={request}; touch at-{request}; until test -e go; do sleep 0.01; done; echo $v"
        return ask(("terminal", {"command": wait}))

    async def whole() -> None:
        told: list[Update] = []
        delegating = ask(("delegate_task", {"tasks": ["a", "b", "c", "d"]}))
        async with conversation(tmp_path, answers([delegating, say("All.")], child)) as (one, _, log):
            turn = asyncio.ensure_future(one.ask("go", told.append))
            await until(lambda: len(list(tmp_path.glob("at-*"))) == 3)
            assert not (tmp_path / "at-d").exists()
            (tmp_path / "go").touch()
            assert (await turn).text == "All."
            (result,) = results(one.messages)
            assert result["output"] == "\n\n".join(f"Task {n}:\n{x} is done: {x}" for n, x in enumerate("abcd", 1))
            assert len(log.children()[one.id]) == 4
        lines = {(each.task, each.title) for each in told if isinstance(each, Delegated)}
        assert lines == {("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")}

    asyncio.run(whole())


def test_a_task_that_fails_ends_no_other(tmp_path: Path) -> None:
    def child(request: str, _: Sequence[Message]) -> Any:
        if request == "b":
            raise ModelError("no answer")
        return say(f"{request} is done")

    async def whole() -> None:
        delegating = ask(("delegate_task", {"tasks": ["a", "b", "c"]}))
        async with conversation(tmp_path, answers([delegating, say("Two of three.")], child)) as (one, _, _log):
            assert (await one.ask("go")).text == "Two of three."
            (result,) = results(one.messages)
        assert result["error"]["message"].startswith("task 2 came to no answer")
        assert "Task 1:\na is done" in result["output"]
        assert "Task 3:\nc is done" in result["output"]

    asyncio.run(whole())


def wait_for_ever(pids: Path) -> Any:
    """A reply of a child: a command that runs on, and writes its process."""
    return ask(("terminal", {"command": f"sh -c 'echo $$ > {pids}; exec sleep 1000'"}))


def test_an_interrupt_ends_all_tasks_also_in_the_background(tmp_path: Path) -> None:
    async def whole() -> list[int]:
        parent = [
            ask(("delegate_task", {"goal": "z", "background": True})),
            ask(("delegate_task", {"tasks": ["a", "b", "c"]})),
        ]
        replies = answers(parent, lambda request, _: wait_for_ever(tmp_path / request))
        async with conversation(tmp_path, replies) as (one, _, _log):
            turn = asyncio.ensure_future(one.ask("go"))
            files = [tmp_path / name for name in "abcz"]
            await until(lambda: all(each.exists() and each.read_text() for each in files))
            one.interrupt()
            assert (await turn).outcome == "interrupted"
            assert not one.background
            return [int(each.read_text()) for each in files]

    assert not any(map(alive, asyncio.run(whole())))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"goal": "a", "tasks": ["b"]}, {"tasks": ["a"] * 9}, {"tasks": [""]}],
)
def test_what_cannot_be_delegated_runs_nothing(tmp_path: Path, arguments: dict[str, Any]) -> None:
    async def whole() -> None:
        replies = [ask(("delegate_task", arguments)), say("It did not work.")]
        async with conversation(tmp_path, replies) as (one, _, log):
            await one.ask("go")
            assert not results(one.messages)[0]["ok"]
            assert not log.children()

    asyncio.run(whole())


def test_a_task_in_the_background_is_announced_and_read_by_process(tmp_path: Path) -> None:
    def child(_: str, messages: Sequence[Message]) -> Any:
        if messages[-1].role == "tool":
            return say("Counted.")
        return ask(("terminal", {"command": "touch began; until test -e go; do sleep 0.01; done"}))

    def look(action: str, **more: Any) -> Any:
        return ask(("process", {"action": action, "session_id": "" if action == "list" else "task-1", **more}))

    async def whole() -> None:
        lines: list[str] = []
        parent = [
            ask(("delegate_task", {"goal": "Count.", "background": True})),
            look("list"),
            look("poll"),
            look("submit", data="x"),
            say("It runs."),
            look("poll"),
            say("It is done."),
        ]
        async with conversation(tmp_path, answers(parent, child)) as (one, _, _log):
            one._context.tell = lines.append  # pyright: ignore[reportPrivateUsage]  as a frontend gives it
            await one.ask("go")
            assert one.background
            assert await one.list_running() == ['task-1: "Count."']
            started, listed, polled, refused = results(one.messages)
            assert started["output"] == "task-1"
            assert listed["output"] == 'task-1 running: "Count."'
            assert (polled["note"], "output" in polled) == ("running", False)
            assert "takes no input" in refused["error"]["message"]
            used = one.usage.prompt
            (tmp_path / "go").touch()
            await until(lambda: not one.background)
            assert lines == ['task-1 is done: "Count."']
            assert one.usage.prompt > used
            await one.ask("and now?")
            request = next(each.content for each in one.messages if each.content.startswith("and now?"))
            assert "The delegated task-1 is done. process with action poll returns its last message." in request
            assert results(one.messages)[-1]["output"] == "Counted."

    asyncio.run(whole())


def test_a_task_that_is_waited_for_is_not_announced(tmp_path: Path) -> None:
    async def whole() -> None:
        parent = [
            ask(("delegate_task", {"goal": "Count.", "background": True})),
            ask(("process", {"action": "wait", "session_id": "task-1", "timeout": 60})),
            say("Done."),
        ]
        async with conversation(tmp_path, answers(parent, lambda _, __: say("Counted."))) as (one, model, _log):
            await one.ask("go")
            assert results(one.messages)[-1]["output"] == "Counted."
            assert not any("The delegated task-1" in each.content for each in model.requests[-1].messages[-1:])

    asyncio.run(whole())


def test_a_task_in_the_background_asks_no_person(tmp_path: Path) -> None:
    def child(_: str, messages: Sequence[Message]) -> Any:
        return say("Refused.") if messages[-1].role == "tool" else ask(("terminal", {"command": "touch made"}))

    async def whole() -> None:
        person = Thinks()
        told: list[Update] = []
        parent = [
            ask(("delegate_task", {"goal": "Make it.", "background": True})),
            ask(("process", {"action": "wait", "session_id": "task-1"})),
            say("Done."),
        ]
        async with conversation(tmp_path, answers(parent, child), person) as (one, _, _log):
            await one.ask("go", told.append)
        assert person.thought_s == 0
        assert not (tmp_path / "made").exists()
        (inner,) = [each.update for each in told if isinstance(each, Delegated)]
        assert isinstance(inner, CallEnded)
        assert inner.envelope.error is not None
        assert "a task in the background cannot ask" in inner.envelope.error.message

    asyncio.run(whole())


def test_tasks_in_the_background_end_by_kill_and_with_the_conversation(tmp_path: Path) -> None:
    async def whole() -> list[int]:
        parent = [
            ask(("delegate_task", {"tasks": ["a", "b"], "background": True})),
            say("They run."),
            ask(("process", {"action": "kill", "session_id": "task-1"})),
            say("One runs."),
        ]
        replies = answers(parent, lambda request, _: wait_for_ever(tmp_path / request))
        async with conversation(tmp_path, replies) as (one, _, _log):
            await one.ask("go")
            files = [tmp_path / name for name in "ab"]
            await until(lambda: all(each.exists() and each.read_text() for each in files))
            first, second = (int(each.read_text()) for each in files)
            await one.ask("end the first")
            assert (alive(first), alive(second)) == (False, True)
            assert results(one.messages)[-1]["error"]["type"] == "ended"
            assert await one.end_background() == ['task-2: "b"']
            return [first, second]

    assert not any(map(alive, asyncio.run(whole())))
