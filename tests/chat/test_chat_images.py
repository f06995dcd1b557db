"""Images in a chat: `--file x.png` of a question, and `/image PATH` at a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.models import say
from tests.chat.conftest import events
from tests.rigs.endpoint import KEY, ScriptedEndpoint
from tests.rigs.pictures import count_images, png

if TYPE_CHECKING:
    from tests.cli.conftest import Cli
    from tests.cli.screen import Screen

Chat = Callable[..., "Screen"]
PROMPT = r"> "


def use_endpoint(cli: Cli, rig: ScriptedEndpoint, *, vision: bool = True) -> None:
    cli.env |= {"OPENAI_API_KEY": KEY}
    config = cli.cwd.parent / "images.toml"
    config.write_text(
        f'[models.main]\nprovider = "custom"\nbase_url = "{rig.url}"\nmodel = "m"\nvision = {str(vision).lower()}\n'
    )
    cli.env["HERMES_EXEC_CONFIG"] = str(config)


def test_a_file_that_is_an_image_is_sent_as_one(cli: Cli) -> None:
    (cli.cwd / "plot.txt").write_bytes(png())
    (cli.cwd / "notes.png").write_text("only words")
    with ScriptedEndpoint([say("Black.")]) as rig:
        use_endpoint(cli, rig)
        done = cli("chat", "-q", "what is it?", "--file", "plot.txt", "--file", "notes.png")
    assert (done.returncode, done.stdout) == (0, b"Black.\n"), done.stderr
    assert sum(count_images(rig.requests[0])) == 1
    assert "notes.png:\n```\nonly words\n```" in rig.requests[0]["messages"][1]["content"][0]["text"]


def test_an_image_from_standard_input_is_one(cli: Cli) -> None:
    with ScriptedEndpoint([say("Black.")]) as rig:
        use_endpoint(cli, rig)
        done = cli("chat", "-q", "what is it?", "--file", "-", stdin=png())
    assert done.returncode == 0, done.stderr
    assert sum(count_images(rig.requests[0])) == 1


@pytest.mark.parametrize("content", [png(), png(9000, 1), png()[:20]])
def test_a_model_that_takes_none_or_an_image_that_is_none_ends_with_one_line(cli: Cli, content: bytes) -> None:
    (cli.cwd / "x.png").write_bytes(content)
    with ScriptedEndpoint([say("Never.")]) as rig:
        use_endpoint(cli, rig, vision=content != png())
        done = cli("chat", "-q", "what is it?", "--file", "x.png")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    says = (
        b"m takes no images" if content == png() else b"x.png: it has 9000x1" if len(content) > 20 else b"not an image"
    )
    assert says in done.stderr
    assert rig.requests == []


def test_an_image_goes_with_the_next_request_and_with_the_same_one_again(cli: Cli, chat: Chat) -> None:
    (cli.cwd / "x.png").write_bytes(png())
    with ScriptedEndpoint([say("Black."), say("Black, again."), say("Nothing.")]) as rig:
        use_endpoint(cli, rig)
        here = chat()
        here.see(PROMPT)
        here.type("/image x.png\r")
        here.see(r"with the next request: x.png \(image/png, 2x3")
        here.type("what is it?\r")
        here.see(r"Black\.")
        here.type("/retry\r")
        here.see(r"Black, again\.")
        here.type("/image\r")
        here.see("no image is sent with the next request")
        here.type("/undo\r")
        here.see("taken back: what is it")
        here.type("hello\r")
        here.see(r"Nothing\.")
    assert [sum(count_images(each)) for each in rig.requests] == [1, 1, 0]
    assert [len(each["data"].get("images", ())) for each in events(cli, "user")] == [1, 1, 0]


def test_a_command_for_an_image_says_at_once_what_is_wrong(cli: Cli, chat: Chat) -> None:
    (cli.cwd / "words.png").write_text("words")
    (cli.cwd / "x.png").write_bytes(png())
    with ScriptedEndpoint([say("Never.")]) as rig:
        use_endpoint(cli, rig)
        here = chat()
        here.see(PROMPT)
        here.type("/image words.png\r")
        here.see("words.png: this is not an image")
        here.type("/image missing.png\r")
        here.see("missing.png")
        here.type("/image x.png\r")
        here.see("with the next request")
        here.type("/image off\r")
        here.see("no image is sent with the next request")
    assert rig.requests == []


def test_a_model_of_the_chat_that_takes_none_is_named_at_once(cli: Cli, chat: Chat) -> None:
    (cli.cwd / "x.png").write_bytes(png())
    with ScriptedEndpoint([say("Never.")]) as rig:
        use_endpoint(cli, rig, vision=False)
        here = chat()
        here.see(PROMPT)
        here.type("/image x.png\r")
        here.see("m takes no images")
    assert rig.requests == []
