"""What goes wrong while a sandbox is created: our error, and what is left at the vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, HermesError, PlaceUnavailable
from hermes_exec_backends.modal import ModalBackend, create
from tests.modal.conftest import Opened, wait_until_none_is_alive
from tests.rigs import modal

if TYPE_CHECKING:
    from tests.rigs.apart import Apart

CREATES = "SandboxCreate*"
GENERATIONS = pytest.mark.parametrize("generation", ["v1", "v2"])


async def refused(opened: Opened, kind: type[HermesError] = PlaceUnavailable, **options: Any) -> HermesError:
    with pytest.raises(kind) as caught:
        async with opened(**options):
            pytest.fail("it was opened")
    return caught.value


@pytest.mark.parametrize(
    ("token_id", "said"), [("ak-wrong", "not accepted"), ("", "no token")], ids=["wrong", "missing"]
)
def test_a_bad_token_is_said_with_what_mends_it(
    run: Any, server: Apart, opened: Opened, monkeypatch: pytest.MonkeyPatch, token_id: str, said: str
) -> None:
    monkeypatch.setenv("MODAL_TOKEN_ID", token_id)
    error = run(refused(opened))
    assert said in error.what
    assert "modal token new" in error.remedy
    assert server.call("alive") == []


@GENERATIONS
@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("PERMISSION_DENIED", "injected"),
        ("RESOURCE_EXHAUSTED", "quota"),
        ("FAILED_PRECONDITION", "injected"),
        ("UNAUTHENTICATED", "token"),
    ],
)
def test_a_refusal_is_asked_for_once_and_leaves_nothing(
    run: Any, server: Apart, opened: Opened, status: str, said: str, generation: str
) -> None:
    server.call("fail", CREATES, status=status, times=99)
    server.call("forget_calls")
    assert said in run(refused(opened, generation=generation)).what
    assert sum(count for name, count in server.call("calls").items() if name.startswith("SandboxCreate")) == 1
    assert server.call("alive") == []


def gives_one_sandbox(run: Any, server: Apart, opened: Opened, generation: str) -> None:
    """A terminal can be had; it has one sandbox, and leaves none."""

    async def work() -> None:
        async with opened(generation=generation) as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"
            assert len(server.call("alive")) == 1

    run(work())
    assert server.call("alive") == []


@GENERATIONS
@pytest.mark.parametrize("status", ["UNAVAILABLE", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "CANCELLED"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_trouble_that_passes_gives_one_sandbox(
    run: Any, server: Apart, opened: Opened, status: str, when: str, generation: str
) -> None:
    server.call("fail", CREATES, status=status, when=when)
    gives_one_sandbox(run, server, opened, generation)


@GENERATIONS
@pytest.mark.parametrize("how", ["lost", "fin", "rst"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_breaks_while_creating_gives_one_sandbox(
    run: Any, server: Apart, opened: Opened, how: str, when: str, generation: str
) -> None:
    server.call("fail", CREATES, how=how, when=when)
    gives_one_sandbox(run, server, opened, generation)


@GENERATIONS
def test_trouble_that_stays_is_an_error_and_leaves_nothing(
    run: Any, server: Apart, opened: Opened, generation: str
) -> None:
    server.call("fail", CREATES, times=99)
    error = run(refused(opened, generation=generation))
    assert "injected" in error.what
    assert "unknown" in error.state
    assert server.call("alive") == []


def test_a_reply_that_never_comes_is_made_up_for_by_the_name(run: Any, server: Apart, opened: Opened) -> None:
    server.call("fail", CREATES, when="after", times=99)

    async def work() -> None:
        async with opened() as terminal:
            assert (await terminal.run("echo in")).stdout == b"in\n"
            assert len(server.call("alive")) == 1

    run(work())
    assert server.call("alive") == []


def test_a_service_that_says_nothing_is_given_up(
    run: Any, server: Apart, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create, "BUILD_S", 1.0)
    server.call("fail", CREATES, how="hang", when="after")
    error = run(refused(opened))
    assert "no answer" in error.what
    assert "unknown" in error.state
    wait_until_none_is_alive(server)


def test_a_service_that_cannot_be_reached_is_given_up(
    run: Any, server: Apart, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_SERVER_URL", "http://127.0.0.1:1")
    error = run(refused(opened))
    assert error.what == "modal: 127.0.0.1:1: the connection is refused; nothing was created"
    assert error.state == "nothing ran"


def test_being_throttled_is_waited_for(run: Any, server: Apart, opened: Opened) -> None:
    server.call("fail", CREATES, status="RESOURCE_EXHAUSTED", retry_after_s=0.2, times=3)

    async def work() -> None:
        async with opened() as terminal:
            assert (await terminal.run("true")).exit_code == 0

    run(work())


def test_being_throttled_for_long_is_an_error(
    run: Any, server: Apart, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODAL_MAX_THROTTLE_WAIT", "1")
    server.call("fail", CREATES, status="RESOURCE_EXHAUSTED", retry_after_s=0.3, times=999)
    assert "too many requests" in run(refused(opened)).what
    assert server.call("alive") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sandbox": "sb-0123456789012345678999"}, "sb-0123456789012345678999"),
        ({"image": "im-unknown"}, "im-unknown"),
        ({"vendor_secrets": ("nobody-made-it",)}, "nobody-made-it"),
    ],
    ids=["sandbox", "image", "secret"],
)
def test_what_is_unknown_there_is_named(
    run: Any, server: Apart, opened: Opened, options: dict[str, Any], said: str
) -> None:
    assert said in run(refused(opened, **options)).what
    assert server.call("alive") == []


def test_an_image_that_cannot_be_built_says_why(run: Any, server: Apart, opened: Opened) -> None:
    server.call("fail_builds", "pip found no such package")
    assert "pip found no such package" in run(refused(opened, requirements=("no-such-thing",))).what
    assert server.call("alive") == []


def test_an_option_that_the_sdk_refuses_is_a_wrong_profile(run: Any, server: Apart, opened: Opened) -> None:
    assert "name" in run(refused(opened, ConfigError, name="not/allowed")).what
    assert server.call("alive") == []


def test_a_sandbox_that_dies_while_it_is_opened_leaves_nothing(run: Any, server: Apart) -> None:
    server.call("fail", "TaskExecStart", status="NOT_FOUND", times=99)

    async def work() -> None:
        with pytest.raises(PlaceUnavailable):
            await hermes_exec.open(ModalBackend(modal.profile()), audit=False)

    run(work())
    assert server.call("alive") == []
