"""The behaviours of any platform on one in this process, and those that need its faults."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.gateway.question_board import answer_question, list_questions
from hermes_exec_agent.frontends.gateway.records import Address, Piece
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.testing import GatewayConformance, Held, Session, behaviour
from tests.rigs.bounded import until
from tests.rigs.gateway import Hub, open_hub

if TYPE_CHECKING:
    from hermes_exec_agent.frontends.gateway.records import Message


class TestHub(GatewayConformance):
    @pytest.fixture
    def rig(self) -> Any:
        return open_hub

    @behaviour
    async def test_a_message_that_is_delivered_twice_is_answered_once(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        session.rig.forgets_acknowledgements = True
        await session.say("ada", "one")
        await session.say("ada", "two")
        await session.read("ada", "echo: two")
        assert session.requests() == ["one", "two"]

    @behaviour
    async def test_an_edit_changes_a_message_whose_turn_has_not_begun(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.rig.edit("ada", "too late")
        await session.say("ada", "tow")
        await session.read("ada", "Queued")
        await session.rig.edit("ada", "two")
        await session.say("ada", "drop me")
        await session.read("ada", "Queued; 2")
        await session.rig.edit("ada", "")
        await until(lambda: not session.rig.waiting)
        model.go.set()
        await session.read("ada", "echo: two")
        assert session.requests() == ["one", "two"]

    @behaviour
    async def test_an_approval_of_the_owner_is_answered_elsewhere_once_and_anothers_is_not(
        self, session: Session
    ) -> None:
        write = ask(("write_file", {"path": "out.txt", "content": "written"}))
        await session.start(write, say("Done."), write, say("Denied."), write, approve="ask")
        await session.pair("ada")
        await session.pair("bob", "bob", "owner")

        async def ask_as(name: str) -> dict[str, Any]:
            await session.say(name, "write it")
            await until(lambda: [each for each in list_questions(session.store) if each["tool"] == "write_file"])
            (question,) = list_questions(session.store)
            return question

        async def answer(question: dict[str, Any]) -> None:
            await asyncio.to_thread(answer_question, session.store, question["id"], True, wait_s=30.0)

        own = await ask_as("ada")
        assert (own["person"], own["is_own"], "out.txt" in own["summary"]) == ("owner", True, True)
        await answer(own)
        await session.read("ada", "Approved in the web view")
        await session.read("ada", "Done.")
        assert (session.folder / "out.txt").read_text() == "written"
        with pytest.raises(UsageError, match="is closed"):
            await answer(own)
        second = await ask_as("ada")
        found = re.search(r"/deny ([A-Z2-9]{4})", await session.read("ada", "May this run?", 2))
        assert found is not None
        await session.say("ada", f"/deny {found[1]}")
        await session.read("ada", "Denied.")
        with pytest.raises(UsageError, match="is closed"):
            await answer(second)
        other = await ask_as("bob")
        with pytest.raises(UsageError, match="bob alone"):
            await answer(other)
        await session.stop()
        await session.start(model=Held(go=True))
        assert list_questions(session.store) == []  # its turn ended with the gateway

    @behaviour
    async def test_a_question_is_answered_elsewhere_once_by_the_owner_and_anothers_is_not_shown(
        self, session: Session
    ) -> None:
        which = ask(("clarify", {"question": "Which?", "choices": ["red"]}))
        await session.start(which, say("Painted."), which, say("Bob's."))
        await session.pair("ada")
        await session.pair("bob", "bob", "owner")
        await session.say("ada", "paint")
        await until(lambda: list_questions(session.store))
        (question,) = list_questions(session.store)
        assert (question["summary"], question["choices"]) == ("Which?", ["red"])
        for wrong in (True, " ", "x" * 10_001):
            with pytest.raises(UsageError):
                answer_question(session.store, question["id"], wrong)
        await asyncio.to_thread(answer_question, session.store, question["id"], "a \ud800 dark red", wait_s=30.0)
        assert "a ? dark red" in await session.read("ada", "Answered in the web view")
        await session.read("ada", "Painted.")
        with pytest.raises(UsageError, match="is closed"):
            answer_question(session.store, question["id"], "blue")
        await session.say("bob", "paint")
        await session.read("bob", "Which?")
        assert list_questions(session.store) == []
        await session.say("bob", "green")
        await session.read("bob", "Bob's.")

    @behaviour
    async def test_a_report_goes_to_no_chat_of_an_account_that_had_the_name_before(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "mine")
        await session.read("ada", "echo: mine")
        found = session.store.find_chat("owner", "hub")
        assert found is not None
        session.store.unpair("owner")
        await session.pair("bob")
        assert session.store.find_chat("owner", "hub") is None
        await session.say("bob", "now mine")
        await session.read("bob", "echo: now mine")
        other = session.store.find_chat("owner", "hub")
        assert other is not None
        assert (found.chat, other.chat) == ("ada", "bob")

    @behaviour
    async def test_the_turn_of_a_removed_person_is_stopped_and_not_answered(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        session.store.unpair("owner")
        await session.pair("ada", "owner")
        await session.say("ada", "/status")
        await session.read("ada", "turn:")
        await session.say("ada", "two")
        await until(lambda: len(model.requests) == 2, 30)
        model.go.set()
        await session.read("ada", "echo: two")
        assert not any("echo: one" in each or "nterrupted" in each for each in session.rig.texts("ada"))
        assert len(session.log.conversations(9)) == 2

    @behaviour
    async def test_a_turn_is_not_stopped_because_the_one_before_ended(self, session: Session) -> None:
        model, looks, goes_on = Held(), threading.Event(), threading.Event()
        await session.start(model=model)
        await session.pair("ada")
        is_done = session.store.is_done

        def look_late(message: Message) -> bool:
            looks.set()
            goes_on.wait(60)
            return is_done(message)

        session.store.is_done = look_late  # type: ignore[method-assign]  # of this store, as on a slow disk
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await until(looks.is_set, 30)
        model.go.set()
        await session.read("ada", "echo: one")
        model.go.clear()
        await session.say("ada", "two")
        await until(lambda: len(model.requests) == 2, 30)
        looks.clear()
        goes_on.set()
        await until(looks.is_set, 30)  # the gateway looked, and looks again
        model.go.set()
        await session.read("ada", "echo: two")
        assert not any("nterrupted" in each or "Stopped" in each for each in session.rig.texts("ada"))

    @behaviour
    async def test_a_person_who_was_paired_again_has_the_new_role_at_once(self, session: Session) -> None:
        await session.start(
            say("Hi."), ask(("write_file", {"path": "out.txt", "content": "written"})), say("Done."), approve="ask"
        )
        await session.pair("bob", "bob", "guest")
        await session.say("bob", "hello")
        await session.read("bob", "Hi.")
        session.store.unpair("bob")
        await session.pair("bob", "bob", "owner")
        await session.say("bob", "write")
        found = re.search(r"/approve ([A-Z2-9]{4})", await session.read("bob", "/approve"))
        assert found is not None
        await session.say("bob", f"/approve {found[1]}")
        await session.read("bob", "Done.")
        assert (session.folder / "out.txt").exists()

    @behaviour
    async def test_a_removed_person_gets_no_piece_again(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        address = Address("hub", "one", "ada")
        await session.stop()
        session.store.put("owner", address, "a note")
        piece = session.store.claim(address, lambda text: [text])
        assert isinstance(piece, Piece)
        session.store.unpair("owner")
        session.store.settle(piece, "pending", error="too fast")
        assert session.store.claim(address, lambda text: [text]) is None
        with pytest.raises(UsageError, match="no such chat"):
            session.store.put("owner", address, "another")

    @behaviour
    async def test_a_stranger_leaves_one_row_and_what_is_old_is_forgotten_while_the_gateway_runs(
        self, session: Session
    ) -> None:
        await session.start(model=Held(go=True))
        for number in range(5):
            await session.say("eve", f"word {number}")
        await session.read("eve", "gateway pair")
        await until(lambda: not session.rig.waiting)
        assert session.count("inbox") == 0
        assert session.count("outbox") == 1
        await session.pair("ada")
        await session.say("ada", "one")
        await session.read("ada", "echo: one")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        session.store.prune()
        assert session.count("inbox") == 1
        session.now = 31 * 86400
        await session.stop()
        await session.start(model=Held(go=True))
        await until(lambda: session.count("inbox") + session.count("outbox") == 0)

    @behaviour
    async def test_the_note_about_a_piece_in_doubt_comes_with_the_next_piece_if_its_own_is_refused(
        self, session: Session
    ) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        await session.rig.fail("unknown")
        await session.say("ada", "one")
        await until(lambda: session.store.count_states().get("unknown") == 1, 60)
        await session.rig.fail("rejected")
        await session.say("ada", "two")
        await until(lambda: session.store.count_states().get("failed") == 1, 30)
        await session.say("ada", "three")
        text = await session.read("ada", "echo: three")
        assert text.startswith("(The message before this one may have arrived, or not.")

    @behaviour
    async def test_a_stated_wait_is_kept_whole_and_grows_by_no_change_of_the_clock(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.stop()
        address = Address("hub", "one", "ada")
        session.rig.retry_s = 7200.0
        await session.rig.fail("flood")
        session.store.put("owner", address, "a note")
        session.now = 86400
        await session.start(model=Held(go=True))
        await until(lambda: not session.rig.faults)
        await until(lambda: session.store.count_states().get("pending") == 1)
        await session.stop()

        def wait_s() -> float:
            due = session.store.claim(address, lambda text: [text])
            assert isinstance(due, float)
            return due - time.time() - session.now

        assert 7100 < wait_s() <= 7200
        session.now = 0
        assert 7100 < wait_s() <= 7200
        session.now = 7201
        assert isinstance(session.store.claim(address, lambda text: [text]), Piece)

    @behaviour
    async def test_one_conversation_over_two_platforms(self, session: Session) -> None:
        other = Hub("other")
        session.rigs.append(other)
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "one")
        await session.read("ada", "echo: one")
        session.rigs.reverse()
        await session.pair("ada-there", "owner")
        await session.say("ada-there", "two")
        await session.read("ada-there", "echo: two")
        (conversation,) = session.log.conversations(9)
        assert conversation.turns == 2

    @behaviour
    async def test_a_platform_that_is_down_hinders_no_other(self, session: Session) -> None:
        session.rigs.append(Hub("other"))
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.rigs[1].cut()
        await until(lambda: any(each["state"] == "down" for each in session.store.platforms()))
        await session.say("ada", "hi")
        await session.read("ada", "echo: hi")
        (down,) = (each for each in session.store.platforms() if each["state"] == "down")
        assert down["error"] == "the hub went away"

    @behaviour
    async def test_chats_have_a_rate_limit(self, session: Session) -> None:
        session.rig.interval_s = 0.2
        await session.start(model=Held(go=True))
        await session.pair("ada")
        for word in ("one", "two", "three"):
            await session.say("ada", word)
        await session.read("ada", "echo: three")
        times = [each.at for each in session.rig.sent]
        assert all(late - early >= 0.2 for early, late in pairwise(times))
