"""A gateway under load, for the soak and the benchmark: many persons on several platforms in this process.

``python -m tests.rigs.gateway_load idle PERSONS PLATFORMS`` prints the memory of one that waits, in bytes.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.frontends.gateway.adapter import Incoming
from hermes_exec_agent.frontends.gateway.core import Gateway
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.frontends.gateway.turns import TurnConfig, Turns
from hermes_exec_agent.models import Models
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.testing import Held
from hermes_exec_agent.tools.tool import Approvals
from tests.rigs.bounded import until
from tests.rigs.gateway import Hub

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PLATFORMS = ("telegram", "slack", "discord", "whatsapp", "signal", "irc")
_ECHO = "echo: "


class Timed(Held):
    """A model that answers at once, and records when it was asked."""

    def __init__(self) -> None:
        super().__init__(go=True)
        self.asked: list[float] = []

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Any]:
        self.asked.append(time.perf_counter())
        async for item in super().stream(*args, **options):
            yield item


@dataclass
class Load:
    """A running gateway, and the messages that were written to it."""

    hubs: list[Hub]
    store: Store
    log: EventLog
    model: Timed
    written: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """The texts of each chat, by platform and person, in their order."""

    def write(self, number: int, person: str, hub: Hub) -> None:
        """Write a message."""
        text = f"message {number}."
        self.written[hub.platform, person].append(text)
        hub.post(Incoming(person, str(number), f"id-{person}", text))

    @property
    def accepted(self) -> bool:
        """Whether all messages were recorded."""
        return not any(hub.waiting for hub in self.hubs)

    @property
    def answered(self) -> int:
        """The number of answers that arrived."""
        return sum(each.text.startswith(_ECHO) for hub in self.hubs for each in hub.sent)

    def check(self) -> None:
        """Check that each message has one turn and one answer, and that the answers of a chat are in its order."""
        requests = [
            str(event.data["content"])
            for summary in self.log.conversations(10_000)
            for event in self.log.events(summary.id)
            if event.kind == "user"
        ]
        everything = [text for texts in self.written.values() for text in texts]
        assert sorted(requests) == sorted(everything), "a message was lost, or had two turns"
        for hub in self.hubs:
            for person in {person for platform, person in self.written if platform == hub.platform}:
                answers = [text for text in hub.texts(person) if text.startswith(_ECHO)]
                expected = [f"{_ECHO}{text}" for text in self.written[hub.platform, person]]
                assert answers == expected, (
                    f"answers to {person} on {hub.platform} are missing, doubled or out of order"
                )


@asynccontextmanager
async def run_load(folder: Path, persons: int, platforms: int, *, pool: int = 16) -> AsyncGenerator[Load]:
    """Serve so many persons, each with an account on so many platforms."""
    hubs = [Hub(name) for name in PLATFORMS[:platforms]]
    with Store(folder / "gateway.sqlite") as store, EventLog(folder / "conversations.sqlite") as log:
        pair_all(store, hubs, persons)
        model = Timed()
        config = TurnConfig("local", "local", Approvals("deny"), str(folder), most=pool)
        turns = Turns(store, log, Models(model), config)
        connected: list[object] = []
        gateway = Gateway(store, [hub.adapter() for hub in hubs], turns, log, grace_s=0.0)
        serving = asyncio.create_task(gateway.run(connected.append))
        try:
            await until(lambda: len(connected) == platforms or serving.done(), 60)
            yield Load(hubs, store, log, model)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def pair_all(store: Store, hubs: list[Hub], persons: int) -> None:
    """Pair persons as a code does, in one transaction."""
    with store.transact() as base:
        for number in range(persons):
            name = f"p{number}"
            base.execute(
                "INSERT INTO persons (name, role, platform, account, chat, added) VALUES (?, 'owner', ?, 'one', ?, 0)",
                (name, hubs[0].platform, name),
            )
            for hub in hubs:
                values = (hub.platform, "one", f"id-{name}", name, 0.0)
                base.execute("INSERT INTO identities VALUES (?, ?, ?, ?, ?)", values)


async def measure_first_bytes(folder: Path, rounds: int) -> tuple[list[float], float]:
    """Return the seconds from each message to its answer, and the processor's for one; the model takes none."""
    async with run_load(folder, 1, 1) as load:
        (hub,) = load.hubs
        taken: list[float] = []
        cpu = 0.0
        for number in range(rounds + 3):
            if number == 3:  # the target is open, and modules are loaded
                taken.clear()
                cpu = time.process_time()
            begin = time.perf_counter()
            load.write(number, "p0", hub)
            while load.answered <= number:
                await asyncio.sleep(0.0005)
            arrived = next(each.at for each in reversed(hub.sent) if each.text.startswith(_ECHO))
            taken.append(arrived - begin)  # the model answers at once
        return taken, (time.process_time() - cpu) / rounds


async def flood(folder: Path, persons: int, platforms: int, rate: float, seconds: float) -> dict[str, float]:
    """Write so many messages a second; return the figures, after everything was checked."""
    async with run_load(folder, persons, platforms) as load:
        begin, cpu, late = time.monotonic(), time.process_time(), 0.0
        for number in range(int(rate * seconds)):
            wait_s = begin + number / rate - time.monotonic()
            late = max(late, -wait_s)
            await asyncio.sleep(max(wait_s, 0.0))
            load.write(number, f"p{number % persons}", load.hubs[number // persons % platforms])
        await until(lambda: load.accepted, 1500)
        accepted = time.monotonic() - begin
        count = int(rate * seconds)
        give_up = time.monotonic() + 1500
        while load.answered < count:
            assert time.monotonic() < give_up, f"{count - load.answered} answers are missing"
            await asyncio.sleep(0.2)
        drained = time.monotonic() - begin
        cpu = time.process_time() - cpu
        load.check()
        return {"messages": count, "late_s": late, "accepted_s": accepted, "drained_s": drained, "cpu_s": cpu}


def read_memory() -> int:
    """Return the resident bytes of this process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


async def measure_idle(folder: Path, persons: int, platforms: int, turns: int = 16) -> int:
    """Return the memory of a gateway with the libraries of all platforms, after each person has written.

    So many of them made requests; these are the conversations that stay open by default.
    """
    for name in PLATFORMS:
        import_module(f"hermes_exec_agent.frontends.gateway.{name}")
    async with run_load(folder, persons, platforms) as load:
        for number in range(persons):
            person, hub = f"p{number}", load.hubs[number % platforms]
            hub.post(Incoming(person, f"s{number}", f"id-{person}", "/status"))
            if number < turns:
                load.write(number, person, hub)
        await until(
            lambda: load.answered >= turns and len({each.chat for hub in load.hubs for each in hub.sent}) >= persons,
            1500,
        )
        await asyncio.sleep(1.0)
        return read_memory()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hx-idle-") as where:
        os.environ["XDG_STATE_HOME"] = where
        print(asyncio.run(measure_idle(Path(where), int(sys.argv[2]), int(sys.argv[3]))))
