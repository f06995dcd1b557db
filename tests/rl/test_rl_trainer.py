"""The client of a trainer's server whose answers are broken, endless or none."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.rl import trainer as module
from hermes_exec_agent.rl.trainer import Registration, TrainerClient, TrainerError, Unanswered
from tests.rl.test_rl_serve import create_person

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def serve_answers(*answers: bytes | int) -> Generator[tuple[str, list[str]]]:
    """Serve each answer once, and the last one again and again: a body, a status, or b"" for one without an end.

    Yields the address, and the paths of all requests.
    """
    left, asked, end = list(answers), list[str](), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            asked.append(self.path)
            answer = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            try:
                if answer == b"":
                    while not end.wait(0.05):
                        self.wfile.write(b" ")
                elif isinstance(answer, bytes):
                    self.wfile.write(answer)
            except OSError:
                return

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        end.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LIMIT_S", "_POST_S", "_MORE_S", "_PAUSE_S"):
        monkeypatch.setattr(module, name, 0.2)


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(
    "answer", [b"", b"[" * 500_000, b"{" * (2 << 20), b"no JSON"], ids=["no end", "deep", "long", "no JSON"]
)
def test_a_post_whose_answer_is_broken_or_has_no_end_is_unanswered_and_sent_once(answer: bytes) -> None:
    async def use(url: str) -> None:
        async with TrainerClient(url, wait_s=1, say=print) as client:
            client._registration = Registration(0, 4, 100)  # pyright: ignore[reportPrivateUsage]  as if it were registered
            with pytest.raises(Unanswered):
                await asyncio.wait_for(client.post({}), 10)

    with serve_answers(answer) as (url, asked):
        asyncio.run(use(url))
    assert asked == ["/scored_data"]


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("answer", [b"", b"[" * 500_000, 307], ids=["no end", "deep", "redirect"])
def test_a_server_that_says_nothing_of_a_trainer_ends_the_wait_with_one_line(answer: bytes | int) -> None:
    async def use(url: str) -> None:
        async with TrainerClient(url, wait_s=0.5, say=print) as client:
            with pytest.raises(TrainerError, match="no answer|no trainer"):
                await asyncio.wait_for(client.register("n", 4, 1.0), 10)

    with serve_answers(answer) as (url, _):
        asyncio.run(use(url))


@pytest.mark.usefixtures("limits")
def test_a_server_that_is_busy_for_a_moment_has_not_forgotten_the_environment() -> None:
    async def use(url: str) -> None:
        async with TrainerClient(url, wait_s=10, say=print) as client:
            client._registration = Registration(0, 4, 100)  # pyright: ignore[reportPrivateUsage]  as if it were registered
            await client.wait_for_space(8)

    with serve_answers(503, 502, b'{"self_queue_size": 0, "current_step": 1}') as (url, asked):
        asyncio.run(use(url))
    assert len(asked) == 3


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999", "http://[::1", "http://a:b", "http://a\n.b", "ftp://a", "http://u:password@a"]
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="it is not an address") as caught:
        TrainerClient(url, wait_s=1, say=print)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "why"),
    [(["--weight", "inf"], "--weight inf"), (["--into", "tasks.jsonl"], "tasks.jsonl: it is not a folder")],
)
def test_wrong_options_are_one_line(tmp_path: Path, argv: list[str], why: str) -> None:
    process = create_person(tmp_path, "http://127.0.0.1:9/v1").start_rl("serve", "tasks.jsonl", *argv)
    said = process.communicate()[1]
    assert (process.returncode, said.count("\n")) == (2, 1)
    assert why in said
