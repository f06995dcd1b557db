"""The start of the reply to a person's request, alone and while a worker reviews tasks of the same log.

The worker is a process of its own, as in a chat, and does one review after another. Both it and the conversation have
their replies from endpoints that answer at once, so that the waiting for a real model hides nothing.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import hermes_exec
from benchmarks.agent import Nobody, Nothing
from benchmarks.figures import BLOCK, Figure, median, p95
from benchmarks.replies import Replies
from hermes_exec.config.load import load_settings
from hermes_exec_agent.learning.outcomes import record_task
from hermes_exec_agent.learning.review import Worker
from hermes_exec_agent.learning.review_queue import ReviewRules, list_pending, queue_after_task
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.runtime import Conversation
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.runtime.events.log import new_id
from hermes_exec_agent.tools.tool import Context

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec import Terminal

DELAY_MS = 5.0
"""What a quiet machine should keep to at p95."""


def queue_review(log: EventLog) -> None:
    """Record a task, and the review that it queues."""
    id = new_id()
    started = {"target": "local", "model": "m", "parent": "", "system": ""}
    last: dict[str, Any] = {"content": "Done.", "tool_calls": [], "model": "m"}
    log.append_all(id, [("started", started), ("user", {"content": "list the files"}), ("assistant", last)])
    record_task(log, id, 2, model="m", target="local")
    record = {"conversation": id, "request": 2}
    queue_after_task(log, record, log.events(id), ReviewRules(interval=1))


async def work_forever(path: Path, port: int) -> None:
    """Queue a review and do it, again and again; print a line after each."""
    models = Models(Endpoint("m", base_url=f"http://127.0.0.1:{port}/v1", window=1 << 20))
    settings = load_settings()
    with EventLog(path) as log:
        while True:
            queue_review(log)
            if not list_pending(log):
                raise AssertionError("no review was queued")
            await Worker(log, models, settings, lambda _: print("reviewed", flush=True)).run_pending()


@contextmanager
def _disable_audits(folder: Path) -> Generator[None]:
    """Be a user without audits, which are measured by themselves."""
    file = folder / "config/hermes_exec/hermes.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[learning]\naudits = false\n")
    with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(folder / "config")}):
        yield


@contextmanager
def _run_worker(path: Path) -> Generator[subprocess.Popen[str]]:
    """Run a worker in a process of its own; it is doing reviews when the block begins."""
    with Replies() as replies:
        argv = [sys.executable, "-m", "benchmarks.reviews", str(path), str(replies.port)]
        root = Path(__file__).parents[1]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                assert process.stdout is not None
                if process.stdout.readline() != "reviewed\n":
                    errors.seek(0)
                    raise AssertionError(f"the worker ended: {errors.read().decode(errors='replace')}")
                yield process
                if process.poll() is not None:
                    raise AssertionError("the worker ended before the last request")
            finally:
                process.kill()
                process.communicate()


class _Person:
    """Asks in conversations over one connection, and takes the time until the first update of the reply."""

    def __init__(self, terminal: Terminal, log: EventLog, port: int) -> None:
        self._endpoint = Endpoint("m", base_url=f"http://127.0.0.1:{port}/v1", window=1 << 20)
        self._terminal, self._log = terminal, log

    async def ask(self, rounds: int) -> list[float]:
        """Return the seconds of so many requests."""
        taken = [await self._ask_once() for _ in range(rounds + 1)]
        await self._endpoint.close()
        return taken[1:]

    async def _ask_once(self) -> float:
        context = Context(self._terminal, "local", Nobody(), "")
        conversation = Conversation(
            models=Models(self._endpoint), tools=[Nothing()], context=context, log=self._log
        )  # fmt: skip
        await conversation.begin()
        first: list[float] = []
        began = time.perf_counter()
        await conversation.ask("go", lambda _: first.append(time.perf_counter()))
        return first[0] - began


async def _measure(rounds: int) -> tuple[list[float], list[float]]:
    alone: list[float] = []
    beside: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Replies() as replies:
        path = Path(folder, "log.sqlite")
        with _disable_audits(Path(folder)), EventLog(path) as log:
            async with hermes_exec.open("local", audit=False) as terminal:
                person = _Person(terminal, log, replies.port)
                await person.ask(1)  # the SDK is imported
                for _ in range(max(1, rounds // BLOCK)):
                    alone += await person.ask(BLOCK)
                    with _run_worker(path):
                        beside += await person.ask(BLOCK)
    return alone, beside


def figures(rounds: int) -> list[Figure]:
    """Measure so many requests alone, and as many beside a worker."""
    alone, beside = asyncio.run(_measure(rounds))
    name = "start of a reply while a review runs"
    return [
        Figure(name, "ms", median(beside) * 1e3, "no review", median(alone) * 1e3),
        Figure(f"{name}, p95", "ms", p95(beside) * 1e3, "no review", p95(alone) * 1e3),
        Figure("… more than without, median", "ms", (median(beside) - median(alone)) * 1e3, "", 0),
        Figure("… more than without, p95", "ms", (p95(beside) - p95(alone)) * 1e3, "the limit", DELAY_MS, 1.0),
    ]


if __name__ == "__main__":
    asyncio.run(work_forever(Path(sys.argv[1]), int(sys.argv[2])))
