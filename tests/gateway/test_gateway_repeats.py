"""Pieces that may have arrived, by what the platform can do with their keys."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, Literal

import pytest

from hermes_exec_agent.frontends.gateway import delivery
from hermes_exec_agent.frontends.gateway.database import connect
from hermes_exec_agent.testing import Held, Session, behaviour
from hermes_exec_agent.testing.gateway_conformance import check_repeated_once
from tests.rigs.bounded import until
from tests.rigs.gateway import Hub

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

NOTE = "(The message before this one may have arrived"


def start_hub(repeat: Literal["never", "key", "find"]) -> Any:
    @asynccontextmanager
    async def start() -> AsyncGenerator[Hub]:
        yield Hub(repeat=repeat)

    return start


async def kill_in_the_middle(session: Session, fault: str) -> None:
    """Kill the gateway while it sends "echo: one": after that arrived if ``fault`` is "held", before if "stuck"."""
    await session.start(model=Held(go=True))
    await session.pair("ada")
    await until(lambda: set(session.store.count_states()) == {"sent"})
    await session.rig.fail(fault)
    await session.say("ada", "one")
    await session.rig.held.wait()
    assert session.store.count_states()["sending"] == 1
    await session.kill()


def tries(session: Session) -> list[str]:
    """The keys of all tries of "echo: one"."""
    return [each.key for each in session.rig.tries if each.text == "echo: one"]


class TestKey:
    @pytest.fixture
    def rig(self) -> Any:
        return start_hub("key")

    @behaviour
    async def test_a_piece_is_sent_again_with_its_key_after_a_kill(self, session: Session) -> None:
        await kill_in_the_middle(session, "held")
        await session.start(model=Held(go=True))
        await until(lambda: set(session.store.count_states()) == {"sent"}, 30)
        assert session.rig.texts("ada").count("echo: one") == 1
        first, second = tries(session)
        assert first == second
        assert len(first) == 24

    @pytest.mark.parametrize("later_s", [61, -61])
    def test_a_piece_whose_key_the_platform_no_longer_knows_is_unknown(
        self, rig: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: int
    ) -> None:
        """Also if the clock went back, so that the time since then cannot be known."""

        async def run(session: Session) -> None:
            await kill_in_the_middle(session, "held")
            session.now = later_s
            await session.start(model=Held(go=True))
            await until(lambda: session.store.count_states().get("unknown") == 1, 30)
            await session.say("ada", "two")
            assert (await session.read("ada", "echo: two")).startswith(NOTE)
            assert len(tries(session)) == 1

        behaviour(lambda _, session: run(session))(self, rig, tmp_path, monkeypatch)

    @behaviour
    async def test_a_lost_answer_is_asked_for_again(self, session: Session) -> None:
        await check_repeated_once(session)
        assert len(tries(session)) == 2

    @behaviour
    async def test_a_repeated_piece_that_is_refused_may_have_arrived_before(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        await session.rig.fail("unknown")
        await session.rig.fail("rejected")
        await session.say("ada", "one")
        await until(lambda: session.store.count_states().get("unknown") == 1, 30)
        assert not session.store.count_states().get("failed")


class TestFind:
    @pytest.fixture
    def rig(self) -> Any:
        return start_hub("find")

    @behaviour
    async def test_a_piece_that_is_found_after_a_kill_is_not_sent_again(self, session: Session) -> None:
        await kill_in_the_middle(session, "held")
        await session.start(model=Held(go=True))
        await until(lambda: set(session.store.count_states()) == {"sent"}, 30)
        assert len(tries(session)) == 1

    @behaviour
    async def test_a_piece_that_is_not_found_after_a_kill_is_sent(self, session: Session) -> None:
        await kill_in_the_middle(session, "stuck")
        await session.start(model=Held(go=True))
        await session.read("ada", "echo: one")
        assert len(tries(session)) == 1

    @behaviour
    async def test_a_piece_that_cannot_be_looked_up_is_looked_up_later(self, session: Session) -> None:
        await kill_in_the_middle(session, "held")
        await session.rig.fail("blind")
        await session.start(model=Held(go=True))
        await until(lambda: set(session.store.count_states()) == {"sent"}, 30)
        assert not session.rig.faults
        assert len(tries(session)) == 1

    @behaviour
    async def test_a_piece_that_can_never_be_looked_up_is_unknown(self, session: Session) -> None:
        await kill_in_the_middle(session, "held")
        for _ in range(3):
            await session.rig.fail("blind")
        before, delivery.MOST_TRIES = delivery.MOST_TRIES, 2
        try:
            await session.start(model=Held(go=True))
            await until(lambda: session.store.count_states().get("unknown") == 1, 30)
        finally:
            delivery.MOST_TRIES = before
        assert len(tries(session)) == 1


class TestNever:
    @pytest.fixture
    def rig(self) -> Any:
        return start_hub("never")

    @behaviour
    async def test_a_piece_is_unknown_after_a_kill(self, session: Session) -> None:
        await kill_in_the_middle(session, "held")
        await session.start(model=Held(go=True))
        await until(lambda: session.store.count_states().get("unknown") == 1, 30)
        await session.say("ada", "two")
        assert (await session.read("ada", "echo: two")).startswith(NOTE)
        assert len(tries(session)) == 1


def test_a_database_of_the_first_version_gets_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sqlite"
    connect(path).close()
    with closing(sqlite3.connect(path)) as base:
        for table in ("inbox", "outbox"):
            for (name,) in base.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?", (table,)
            ).fetchall():
                base.execute(f"DROP TRIGGER {name}")
        base.execute("DROP TABLE files")
        for table in ("early_edits", "questions"):
            base.execute(f"DROP TABLE {table}")
        for index in ("edits", "batch", "announced", "unknown"):
            base.execute(f"DROP INDEX outbox_{index}")
        for column in ("key", "doubt", "is_draft", "is_file", "revision", "shown"):
            base.execute(f"ALTER TABLE outbox DROP COLUMN {column}")
        base.execute(
            "INSERT INTO outbox (batch, person, platform, account, chat, text, at, changed, state)"
            " VALUES (1, 'owner', 'hub', 'one', 'ada', 'old', unixepoch(), unixepoch(), 'sent')"
        )
        base.commit()

    async def work() -> None:
        session = Session([Hub()], tmp_path)
        try:
            await session.start(model=Held(go=True))
            await session.pair("ada")
            await session.say("ada", "one")
            await session.read("ada", "echo: one")
            assert [each["text"] for each in session.store.outbox()][-1] == "old"
        finally:
            await session.close()

    asyncio.run(work())
