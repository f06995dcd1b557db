"""What an agent starts in the background ends with its conversation in every place, unless it was to be kept."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.tools.tool import Context
from hermes_exec_agent.tools.toolset import create_tools
from tests.rigs.bounded import wait_until
from tests.rigs.processes import with_mark
from tests.tools.conftest import PLACES, Agent, Somebody, agent_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.backend import Backend

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("place", [each for each in PLACES if each != "bubblewrap"], indirect=True)
def test_background_commands_end_with_the_conversation_and_kept_ones_go_on(place: Callable[[], Backend]) -> None:
    own = f"{os.getpid()}.{time.monotonic_ns() % 10**9}"
    bound, kept = f"7{own}", f"8{own}"
    said: list[str] = []
    person = Somebody()

    async def work(agent: Agent) -> tuple[str, str]:
        await agent("terminal", command=f"setsid sleep {bound} & (sleep {bound} &)")  # of the shell
        command = f"trap '' TERM; setsid sleep {bound} & (sleep {bound} &) ; sleep {bound}"
        ending = await agent("terminal", command=command, background=True)
        over = await agent("terminal", command="true", background=True)
        await agent("process", action="wait", session_id=over["session_id"])
        going = await agent("terminal", command=f"sleep {kept}", background=True, keep=True)
        assert person.asked == [
            ("terminal", f"start a job that outlives this conversation: sleep {kept} in the background")
        ]
        wait_until(lambda: len(with_mark(bound)) >= 5 and with_mark(kept))
        return ending["session_id"], going["session_id"]

    async def whole() -> None:
        async with agent_in(place()) as other:  # as each of a server's conversations has a shell of its own
            terminal = other.context.terminal
            context = Context(terminal, "there", person, "c", approvals=other.context.approvals, tell=said.append)
            ending, going = await work(Agent(context, create_tools(context)))
            await context.close()
            assert not with_mark(bound)
            assert with_mark(kept)
            assert [job.id for job in await terminal.jobs()] == [going]
            assert said[0].startswith(f"ended with the conversation: {ending}: trap")
            assert said[1:] == [f"job {going} goes on in there: hermes-exec jobs"]
            job = await terminal.job(going)
            await job.kill()
            await job.prune()

    asyncio.run(whole())


@pytest.mark.parametrize("person", [None, Somebody(says=False)], ids=["nobody", "no"])
def test_a_job_that_outlives_the_conversation_needs_a_person_whatever_is_allowed(person: Somebody | None) -> None:
    marked = f"sleep 6{os.getpid()}.{time.monotonic_ns() % 10**9}"

    async def keep() -> tuple[dict[str, Any], dict[str, Any], list[object]]:
        async with agent_in("local", person, mode="allow", tools={"terminal": "allow"}) as agent:
            told = await agent("terminal", command=marked, background=True, keep=True)
            nested = f"print(tools.terminal(command={marked!r}, background=True, keep=True))"
            return told, await agent("execute_code", code=nested), [*await agent.context.terminal.jobs()]

    told, nested, jobs = asyncio.run(keep())
    assert told["error"]["type"] == "denied"
    assert person is not None or f"approval to start a job that outlives this conversation: {marked}" in str(told)
    assert told["error"]["message"] in nested["output"]
    assert jobs == with_mark(marked.partition(" ")[2]) == []


@pytest.mark.parametrize("place", ["bubblewrap"], indirect=True)
def test_a_job_cannot_be_kept_where_everything_ends_with_this_program(place: Callable[[], Backend]) -> None:
    async def keep() -> tuple[dict[str, Any], list[object]]:
        async with agent_in(place()) as agent:
            told = await agent("terminal", command="sleep 99", background=True, keep=True)
            return told, [*await agent.context.terminal.jobs()]

    told, jobs = asyncio.run(keep())
    assert "no job outlives the conversation" in told["error"]["message"]
    assert jobs == []
