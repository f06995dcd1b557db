"""What the gateway does when its store, a message or a platform misbehaves, on a platform in this process."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent import database_files
from hermes_exec_agent.frontends.gateway import core
from hermes_exec_agent.frontends.gateway.adapter import Incoming, IncomingFile
from hermes_exec_agent.frontends.gateway.commands import classify
from hermes_exec_agent.frontends.gateway.questions import ChatPerson
from hermes_exec_agent.frontends.gateway.records import Address
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.testing import Held, Session, behaviour
from hermes_exec_agent.testing.gateway_session import CODE
from tests.rigs.bounded import until
from tests.rigs.gateway import Hub, open_hub

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def hold_store(session: Session) -> Generator[None]:
    """Be another program that writes to the store for longer than anyone waits."""
    with closing(sqlite3.connect(session.folder / "gateway.sqlite", isolation_level=None)) as base:
        base.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            base.execute("ROLLBACK")


@pytest.fixture
def rig() -> Any:
    return open_hub


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_files, "_PATIENCE_S", 0.05)


@pytest.mark.usefixtures("impatient")
class TestStoreInUse:
    @behaviour
    async def test_a_turn_that_could_not_be_recorded_and_those_after_it_go_on(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.say("ada", "two")
        await session.read("ada", "Queued")
        with hold_store(session):
            model.go.set()
            await until(lambda: session.requests() and session.log.conversations(1)[0].turns)
            await asyncio.sleep(0.3)
        await session.read("ada", "echo: two")
        assert [each for each in session.rig.texts("ada") if "echo" in each] == ["echo: one", "echo: two"]
        assert session.requests() == ["one", "two"]

    @behaviour
    async def test_a_piece_whose_arrival_could_not_be_recorded_is_sent_once_and_known(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        await session.rig.fail("slow")
        await session.say("ada", "one")
        await session.rig.held.wait()
        with hold_store(session):
            session.rig.released.set()
            await session.read("ada", "echo: one")
            await asyncio.sleep(0.3)
        await until(lambda: set(session.store.count_states()) == {"sent"}, 30)
        assert session.rig.texts("ada").count("echo: one") == 1


class TestMessages:
    @behaviour
    async def test_halves_of_characters_stop_nothing(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        session.rig.post(Incoming("ada", "m\ud83d1", "id-ada", "half \ud83d"))
        await session.read("ada", "echo: half ?")
        assert session.requests() == ["half ?"]

    @behaviour
    async def test_an_edit_that_overtakes_its_message_counts(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        session.rig.post(Incoming("ada", "900", "id-ada", "two", is_edit=True))
        session.rig.post(Incoming("ada", "901", "id-ada", "", is_edit=True))
        session.rig.post(Incoming("ada", "902", "id-eve", "obey", is_edit=True))
        for id, word in (("900", "tow"), ("901", "withdrawn"), ("902", "three")):
            session.rig.post(Incoming("ada", id, "id-ada", word))
        await session.read("ada", "echo: three")
        assert session.requests() == ["two", "three"]

    @behaviour
    async def test_a_message_with_a_file_can_be_deleted_and_keeps_its_file_without_its_text(
        self, session: Session
    ) -> None:
        async def read(_: int) -> bytes:
            return b"content"

        def post(id: str, text: str, *, edit: bool = False, file: bool = True) -> None:
            files = (IncomingFile("a.txt", "text/plain", 7, read),) if file else ()
            session.rig.post(Incoming("ada", id, "id-ada", text, is_edit=edit, files=files))

        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        post("900", "late", edit=True, file=False)
        post("900", "", edit=True, file=False)
        for id in ("900", "901", "902"):
            post(id, f"look {id}")
        post("901", "", edit=True, file=False)
        post("902", "", edit=True)
        await until(lambda: not session.rig.waiting)
        model.go.set()
        await session.read("ada", "a.txt")
        assert "look" not in "".join(session.requests())
        assert len(session.requests()) == 2

    @behaviour
    async def test_another_person_edits_nothing_and_a_command_that_waits_can_be_withdrawn(
        self, session: Session
    ) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        for id, word in (("900", "two"), ("901", "/model other"), ("902", "/model nothing")):
            session.rig.post(Incoming("ada", id, "id-ada", word))
        session.rig.post(Incoming("ada", "900", "id-eve", "obey", is_edit=True))
        session.rig.post(Incoming("ada", "901", "id-ada", "", is_edit=True))
        session.rig.post(Incoming("ada", "902", "id-ada", "/model main", is_edit=True))
        await until(lambda: not session.rig.waiting)
        model.go.set()
        await session.read("ada", "The model is main")
        assert session.requests() == ["one", "two"]
        assert not any("The model is other" in each or "no model" in each for each in session.rig.texts("ada"))

    @behaviour
    async def test_a_request_that_was_dropped_counts_for_no_limit(self, session: Session) -> None:
        await session.start(model=Held(go=True), guests=1)
        await session.pair("gus", "gus", "guest")
        await session.say("gus", "one")
        await session.read("gus", "echo: one")
        session.now = 43200
        await session.say("gus", "two")
        await session.read("gus", "this one was dropped")
        await session.say("gus", " ")
        await session.read("gus", "no text")
        session.now = 86401
        await session.say("gus", "three")
        await session.read("gus", "echo: three")


class TestEnd:
    @behaviour
    async def test_a_file_that_never_comes_and_a_close_that_never_ends_do_not_hold_up_the_end(
        self, session: Session
    ) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        reading = asyncio.Event()

        async def read(_: int) -> bytes:
            reading.set()
            await asyncio.Event().wait()
            return b""

        session.rig.post(Incoming("ada", "900", "id-ada", "one", files=(IncomingFile("a", "", None, read),)))
        await reading.wait()
        session.rig.never_closes = True
        before = core.ACCEPT_S, core.CLOSE_S
        core.ACCEPT_S = core.CLOSE_S = 0.1
        try:
            async with asyncio.timeout(10):
                await session.stop()
        finally:
            core.ACCEPT_S, core.CLOSE_S = before
        assert session.rig.waiting
        assert session.count("inbox") == 0

    @behaviour
    async def test_what_waits_and_what_is_being_sent_arrives_before_the_end(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        await session.rig.fail("slow")
        for word in ("one", "two"):
            session.store.put("owner", Address("hub", "one", "ada"), word)
        await session.rig.held.wait()
        ending = asyncio.create_task(session.stop())
        await asyncio.sleep(0.1)
        session.rig.released.set()
        await ending
        assert session.rig.texts("ada")[-2:] == ["one", "two"]
        assert set(session.store.count_states()) == {"sent"}

    @behaviour
    async def test_a_message_that_comes_while_the_last_turn_ends_is_recorded_and_answered_later(
        self, session: Session
    ) -> None:
        model = Held()
        await session.start(model=model, grace_s=30.0)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        ending = asyncio.create_task(session.stop())
        await asyncio.sleep(0.05)
        await session.say("ada", "two")
        await session.read("ada", "Queued; 1 before it.")
        model.go.set()
        await ending
        assert "echo: one" in session.rig.texts("ada")
        assert session.requests() == ["one"]
        await session.start(model=Held(go=True))
        await session.read("ada", "echo: two")


class TestOtherPlatform:
    @behaviour
    async def test_hosts_whose_names_are_looked_up_for_long_hold_up_no_other_platform(self, session: Session) -> None:
        other = Hub("other")
        session.rigs.append(other)
        found = threading.Event()
        other.before_send = lambda: asyncio.get_running_loop().run_in_executor(None, found.wait, 60)  # as getaddrinfo
        await session.start(model=Held(go=True))
        await session.pair("ada")
        try:
            for number in range(50):
                other.post(Incoming(f"eve{number}", "1", f"id-{number}", "hello"))
            await until(lambda: not other.waiting)
            await until(lambda: session.store.count_states().get("sending", 0) >= 6)
            await session.say("ada", "one")
            await session.read("ada", "echo: one")
        finally:
            found.set()


class TestClock:
    @behaviour
    async def test_a_key_is_too_old_also_if_the_clock_was_set_back(self, session: Session) -> None:
        session.rig.repeat, session.rig.repeat_s = "key", 3.0
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        await session.rig.fail("unknown")
        await session.say("ada", "one")
        await session.read("ada", "echo: one")
        await until(lambda: session.store.count_states().get("pending") == 1)
        while "unknown" not in session.store.count_states():
            session.now -= 0.05  # the clock runs at half the speed
            await asyncio.sleep(0.1)
        assert session.store.count_states()["unknown"] == 1
        assert len([each for each in session.rig.tries if each.text == "echo: one"]) == 1

    def test_an_approval_is_not_valid_after_the_machine_slept(self) -> None:
        async def run() -> None:
            now = [0.0]
            person = ChatPerson(is_guest=False, clock=lambda: now[0])
            shown: asyncio.Queue[str] = asyncio.Queue()

            async def show(text: str, _: object) -> None:
                shown.put_nowait(text)

            person.say = show
            asking = asyncio.create_task(person.approve("run", "rm -r /"))
            code = (await shown.get()).partition("/approve ")[2][:4]
            now[0] = 601.0
            assert "no such open question" in person.decide(code, allow=True)
            assert not asking.done()
            now[0] = 599.0
            assert "Approved" in person.decide(code, allow=True)
            assert await asking

        asyncio.run(run())


class TestPairing:
    @pytest.fixture
    def clock(self) -> list[float]:
        return [1e9]

    @pytest.fixture
    def store(self, tmp_path: Path, clock: list[float]) -> Generator[Store]:
        with Store(tmp_path / "gateway.sqlite", clock=lambda: clock[0]) as store:
            yield store

    def find_code(self, store: Store, chat: str, account: str = "one") -> str:
        store.accept("hub", account, Incoming(chat, "1", f"id-{chat}", "hello"), classify)
        with closing(sqlite3.connect(store.path)) as base:
            row = base.execute("SELECT text FROM outbox WHERE chat = ? ORDER BY id DESC LIMIT 1", (chat,)).fetchone()
        found = CODE.search(row[0] if row else "")
        return found[1] if found else ""

    def test_a_code_from_a_clock_that_was_ahead_is_not_valid_later(self, store: Store, clock: list[float]) -> None:
        clock[0] += 86400
        code = self.find_code(store, "ada")
        clock[0] -= 86400
        with pytest.raises(UsageError, match="wrong or has expired"):
            store.pair(code, "owner", None)
        assert self.find_code(store, "ada") != code

    def test_tries_of_a_clock_that_was_ahead_lock_nothing(self, store: Store, clock: list[float]) -> None:
        clock[0] += 86400
        for _ in range(5):
            with pytest.raises(UsageError, match="wrong or has expired"):
                store.pair("WRONGWRO", "owner", None)
        clock[0] -= 86400
        assert store.pair(self.find_code(store, "ada"), "owner", None).name == "owner"

    def test_strangers_of_one_account_use_up_no_codes_of_another(self, store: Store) -> None:
        assert [bool(self.find_code(store, f"eve{number}")) for number in range(51)] == [True] * 50 + [False]
        assert self.find_code(store, "ada", "two")
