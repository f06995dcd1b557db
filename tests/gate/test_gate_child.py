"""The child process in which hostile input is parsed: its limits, and what its answers may be."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec_policies.gate import child_process
from hermes_exec_policies.gate.analysis.audit import run_bandit
from hermes_exec_policies.gate.analysis.mutants import make_mutants
from hermes_exec_policies.gate.child_process import ChildProcess, Unanswered
from tests.rigs import processes

if TYPE_CHECKING:
    from collections.abc import Callable


def spin() -> int:
    while True:
        pass


def fill() -> int:
    return len(bytearray(2 << 30))


def leave() -> int:
    os._exit(3)


def lie() -> int:
    return "no number"  # type: ignore[return-value]  # what a child that was taken over may answer


def flood() -> str:
    return "x" * (3 << 20)


def shout(text: str) -> tuple[str, frozenset[int]]:
    os.write(1, b"noise")
    return text.upper(), frozenset({len(text)})


WRONG = {
    spin: "exit status -24",
    fill: "MemoryError",
    leave: "exit status 3",
    lie: "an invalid answer",
    flood: "an answer of more than 1 MiB",
}


@pytest.mark.parametrize(("function", "why"), WRONG.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_call_without_a_valid_answer_is_one_error_and_the_next_is_answered(
    function: Callable[[], object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "_ANSWER", 1 << 20)

    async def call() -> tuple[str, frozenset[int]]:
        async with ChildProcess() as child:
            with pytest.raises(Unanswered, match=why):
                await child.call(1, function)
            return await child.call(1, shout, "text")

    assert asyncio.run(call()) == ("TEXT", frozenset({4}))


def test_a_call_that_is_given_up_leaves_no_process() -> None:
    async def call() -> tuple[str, frozenset[int]]:
        async with ChildProcess() as child:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await child.call(60, spin)
            return (await asyncio.gather(child.call(1, shout, "text"), child.call(1, shout, "more")))[1]

    before = processes.children(os.getpid())
    assert asyncio.run(call()) == ("MORE", frozenset({4}))
    assert set(processes.children(os.getpid())) <= set(before)


def test_the_audit_leaves_no_trace_in_trees_that_are_parsed_later() -> None:
    table = "".join(f"    {number}: {number * number},\n" for number in range(1500))
    script = f"TABLE = {{\n{table}}}\n\n\ndef run(n: int) -> int:\n    return TABLE[n]\n"

    async def make() -> int:
        async with ChildProcess() as child:
            await child.call(20, run_bandit, "scripts/main.py", script)
            return len(await child.call(20, make_mutants, script, "run"))

    assert asyncio.run(make()) > 1
