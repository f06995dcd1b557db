"""The behaviours of adapters whose platform has files, or can change a message."""

from __future__ import annotations

import base64
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hermes_exec_agent.models import ask, say
from hermes_exec_agent.testing.gateway_session import Growing, Held, behaviour, until

if TYPE_CHECKING:
    from hermes_exec_agent.testing.gateway_session import Session

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class FileConformance:
    """The behaviours of a platform with files, whose rig is a `FileRig`."""

    @behaviour
    async def test_a_file_is_placed_where_the_turn_works_and_named(self, session: Session) -> None:
        model = Held(go=True)
        await session.start(model=model)
        await session.pair("ada")
        await session.rig.attach("ada", b"a,b\n1,2\n", "sum", file_name="../../my table;.csv", mime_type="text/csv")
        await session.read("ada", "echo: sum")
        (placed,) = (session.folder / "received").iterdir()
        assert placed.read_bytes() == b"a,b\n1,2\n"
        assert placed.name.endswith("-my_table_.csv")
        assert f"[Attached file: received/{placed.name} (text/csv, 8 bytes)]" in model.requests[0]
        assert session.count("files") == 0

    @behaviour
    async def test_an_image_reaches_a_model_that_takes_images(self, session: Session) -> None:
        """It is a file for one that takes none."""
        for number, vision in enumerate((True, False), 1):
            model = Held(go=True)
            model.vision = vision
            await session.start(model=model)
            if vision:
                await session.pair("ada")
            await session.rig.attach("ada", PNG, f"look {number}", file_name="dot.png", mime_type="image/png")
            await session.read("ada", f"echo: look {number}")
            assert model.images == ([base64.b64encode(PNG).decode()] if vision else [])
            assert len(list((session.folder / "received").iterdir())) == number
            await session.stop()

    @behaviour
    async def test_a_file_without_a_text_is_a_request(self, session: Session) -> None:
        model = Held(go=True)
        await session.start(model=model)
        await session.pair("ada")
        await session.rig.attach("ada", b"words")
        await session.read("ada", "Attached file")
        assert model.requests[0].startswith("[Attached file: received/")

    @behaviour
    async def test_a_file_that_is_too_large_is_named_and_not_kept(self, session: Session) -> None:
        """Also if the platform states a smaller size than it has."""
        model = Held(go=True)
        await session.start(model=model)
        await session.pair("ada")
        for number, stated in enumerate((1001, 10), 1):
            await session.rig.attach("ada", b"x" * 1001, f"number {number}", size=stated)
            await session.read("ada", f"echo: number {number}")
            assert re.search(r"was not read: it has (more than )?1,00[01] bytes", model.requests[-1])
        assert not (session.folder / "received").exists()

    @behaviour
    async def test_a_file_that_waits_for_its_turn_outlasts_a_kill(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.rig.attach("ada", b"kept", "two")
        await session.read("ada", "Queued; 1 before it.")
        await session.kill()
        await session.start(model=Held(go=True))
        await session.read("ada", "echo: two")
        (placed,) = (session.folder / "received").iterdir()
        assert placed.read_bytes() == b"kept"

    @behaviour
    async def test_the_model_sends_a_file_of_its_target(self, session: Session) -> None:
        (session.folder / "report.txt").write_text("the report")
        await session.start(ask(("send_file", {"path": "report.txt"})), say("Sent."))
        await session.pair("ada")
        await session.say("ada", "send me the report")
        await session.read("ada", "Sent.")
        await until(lambda: session.rig.files("ada"), 30)
        assert session.rig.files("ada") == [("report.txt", b"the report")]
        await until(lambda: session.count("files") == 0)

    @behaviour
    async def test_a_file_that_the_chat_does_not_take_is_refused(self, session: Session) -> None:
        (session.folder / "large.bin").write_bytes(b"x" * 1001)
        await session.start(ask(("send_file", {"path": "large.bin"})), say("It is too large."))
        await session.pair("ada")
        await session.say("ada", "send it")
        await session.read("ada", "It is too large.")
        results = [
            str(event.data)
            for event in session.log.events(session.log.conversations(1)[0].id)
            if event.kind == "result"
        ]
        assert any("1,000 bytes" in each for each in results)
        assert session.rig.files("ada") == []


class EditConformance:
    """The behaviours of a platform that can change a message, whose rig is an `EditRig`."""

    @behaviour
    async def test_an_answer_grows_in_one_message(self, session: Session) -> None:
        model = Growing()
        await session.start(model=model, draft_s=0.05)
        await session.pair("ada")
        before = len(session.rig.texts("ada"))
        await session.say("ada", "tell me")
        await session.read("ada", "first …")
        model.more("second ")
        await session.read("ada", "first second …")
        model.end("third.")
        await session.read("ada", "first second third.")
        assert session.rig.texts("ada")[before:] == ["first second third."]
        times = [each[-1] for each in session.rig.changes]
        assert all(later - earlier >= 0.95 for earlier, later in pairwise(times))
        assert set(session.store.count_states()) == {"sent"}

    @behaviour
    async def test_a_long_answer_goes_on_in_further_messages(self, session: Session) -> None:
        model = Growing()
        await session.start(model=model, draft_s=0.05)
        await session.pair("ada")
        before = len(session.rig.texts("ada"))
        longest = session.rig.adapter().traits.longest
        await session.say("ada", "tell me")
        await session.read("ada", "first …")
        text = "\n\n".join(f"Paragraph {number} has a few words." for number in range(longest // 20))
        model.end(f"\n\n{text}\n\nThe end.")
        await session.read("ada", "The end.")
        whole = "\n\n".join(session.rig.texts("ada")[before:])
        assert re.findall(r"\w+", whole) == re.findall(r"\w+", f"first {text} The end.")

    @behaviour
    async def test_a_kill_while_an_answer_grows_adds_no_message(self, session: Session) -> None:
        model = Growing()
        await session.start(model=model, draft_s=0.05)
        await session.pair("ada")
        before = len(session.rig.texts("ada"))
        await session.say("ada", "tell me")
        await session.read("ada", "first …")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        await session.kill()
        await session.start(model=Held(go=True))
        await session.read("ada", "The gateway ended while it worked on this request")
        assert len(session.rig.texts("ada")) == before + 1

    @behaviour
    async def test_a_question_in_between_leaves_the_words_before_it(self, session: Session) -> None:
        model = Growing(ask(("write_file", {"path": "out.txt", "content": "written"}), text="first "))
        await session.start(model=model, approve="ask", draft_s=0.05)
        await session.pair("ada")
        before = len(session.rig.texts("ada"))
        await session.say("ada", "write")
        await session.read("ada", "first …")
        model.end("")
        question = await session.read("ada", "/approve")
        code = re.search(r"/approve (\w+)", question)
        assert code is not None
        await session.say("ada", f"/approve {code[1]}")
        await session.read("ada", "echo: ")
        shown = session.rig.texts("ada")[before:]
        await until(lambda: session.rig.texts("ada")[before] == "first")
        assert "May this run?" in shown[1]

    @behaviour
    async def test_an_answer_whose_message_is_gone_is_sent_anew(self, session: Session) -> None:
        model = Growing()
        await session.start(model=model, draft_s=0.05)
        await session.pair("ada")
        await session.say("ada", "tell me")
        await session.read("ada", "first …")
        await session.rig.fail("gone")
        model.end("second.")
        await session.read("ada", "first second.")
        assert any(each == "first second." for each in session.rig.texts("ada"))
