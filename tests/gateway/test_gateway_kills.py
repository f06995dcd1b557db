"""The gateway is killed at random moments, while people write: no message is lost or answered twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.frontends.gateway.database import connect
from hermes_exec_agent.frontends.gateway.outbox import DRAFT_END
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.frontends.gateway.turns import CUT_OFF, describe_failure
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.testing.gateway_session import CODE
from tests.rigs.bounded import until
from tests.rigs.breadth import SEED
from tests.rigs.telegram_api import TelegramRig, run_telegram

if TYPE_CHECKING:
    from pathlib import Path

PERSONS = ("owner", "bob", "cleo")


class Killed:
    """The process that starts gateways."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(b"start\n")
        return int(await self._read())

    async def kill(self, number: int) -> None:
        os.kill(number, signal.SIGKILL)
        assert await self._read() == b"ended\n"

    async def _read(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()


async def write(rig: TelegramRig, chance: random.Random, count: int) -> None:
    """Write numbered messages at random moments."""
    for number in range(count):
        await rig.say(chance.choice(PERSONS), f"message {number}.")
        await asyncio.sleep(chance.uniform(0.0, 0.3))


async def wait_for_moment(rig: TelegramRig, chance: random.Random) -> None:
    """Wait for a random time, or until the platform is in the middle of a random kind of request."""
    name = chance.choice(["", "", *rig.moments])
    if not name:
        await asyncio.sleep(chance.uniform(0.0, 0.6))
        return
    rig.moments[name].clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.8):
            await rig.moments[name].wait()


def has_code(rig: TelegramRig, name: str) -> bool:
    return CODE.search("".join(rig.texts(name))) is not None


async def pair_all(rig: TelegramRig, folder: Path) -> None:
    for name in PERSONS:
        await rig.say(name, "hello")
        await until(partial(has_code, rig, name), 30)
        found = CODE.search("".join(rig.texts(name)))
        assert found is not None
        with Store(folder / "gateway.sqlite") as store:
            store.pair(found[1], name, "owner")


async def die(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    async with run_telegram() as rig:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.rigs.gateway_kills", str(folder), rig.url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        killed = Killed(process)
        try:
            number = await killed.start()
            await pair_all(rig, folder)
            count = kills * 3
            rig.send_s = 0.03
            writing = asyncio.create_task(write(rig, chance, count))
            for _ in range(kills):
                if chance.random() < 0.8:  # else it may still be starting
                    await rig.polled.wait()
                await wait_for_moment(rig, chance)
                await killed.kill(number)
                rig.polled.clear()
                number = await killed.start()
            await writing
            await until(lambda: is_settled(folder, rig))
            await killed.kill(number)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        check(folder, rig, count, kills)


def is_settled(folder: Path, rig: TelegramRig) -> bool:
    with Store(folder / "gateway.sqlite") as store:
        states = store.count_states()
        is_busy = rig.updates or store.list_waiting() or states.get("sending")
        return not (is_busy or store.pending_chats("telegram", "4711"))


def check(folder: Path, rig: TelegramRig, count: int, kills: int) -> None:
    with EventLog(folder / "conversations.sqlite") as log:
        asked = Counter(
            str(event.data["content"])
            for summary in log.conversations(100)
            for event in log.events(summary.id)
            if event.kind == "user"
        )
        expected = Counter({f"message {number}.": 1 for number in range(count)})
        with contextlib.closing(connect(folder / "gateway.sqlite")) as base:
            rows = base.execute("SELECT * FROM outbox").fetchall()
        failures = [row["text"] for row in rows if row["text"].startswith(describe_failure(""))]
        assert asked == expected, f"lost: {expected - asked}, two turns: {asked - expected}, failures: {failures}"
        texts = [each["plain"] for each in rig.sent]
        arrived = Counter(each for each in texts if each.startswith("echo: ") and not each.endswith(DRAFT_END))
        assert [text for text, times in arrived.items() if times > 1] == [], "an answer was sent twice"
        drafts = [row for row in rows if row["state"] == "unknown" and row["again"] == 0]
        """Beginnings of answers that may have arrived; the answers followed as pieces of their own."""
        others = [row["text"] for row in rows if row not in drafts]
        answers = [text for text in others if text.startswith("echo: ") or CUT_OFF in text]
        assert len(answers) == count, "a message was answered never, or twice"
        states = Counter(row["state"] for row in rows)
        assert set(states) <= {"sent", "unknown"}
        assert states["unknown"] <= kills * len(PERSONS)  # chats that were being sent to
        assert states["unknown"] or sum(CUT_OFF in text for text in others), "the kills met nothing"
        assert states["sent"] <= len(rig.sent) <= states["sent"] + states["unknown"]
        for row in rows:
            if row["state"] == "sent":
                shown = rig.sent[int(row["receipt"]) - 10_001]["text"]
                assert shown.endswith(row["text"]), "the end of an answer is missing"
        assert sum(each.endswith(DRAFT_END) for each in texts) <= len(drafts)
        assert rig.changes, "no answer was shown while it was written"


def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(die(tmp_path, 12, SEED), 140))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_three_hundred_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(die(tmp_path, 300, SEED), 1150))
