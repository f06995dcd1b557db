"""Terminals in sandboxes under a policy: the launcher confines the guest, and everything that it starts."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.config import registry
from hermes_exec.errors import ConfigError, PlaceUnavailable, Unsupported
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from hermes_exec_backends.sandbox.host import this_machine
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.boxes import Box

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Require


@pytest.fixture
def under(require: Require, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """``under(POLICY, COMMAND)``: what the command prints."""
    require("bwrap", "makes the sandbox")
    point = EntryPoint("policies", "tests.rigs.sandboxes:named", registry.CONFINEMENT)

    def own_entry_points(_: str) -> dict[str, EntryPoint]:
        return {"policies": point}

    monkeypatch.setattr(registry, "own_entry_points", own_entry_points)

    def run(policy: str, command: str, carrier: Any = None) -> str:
        backend = BubblewrapBackend(BubblewrapProfile(policy=policy))

        async def once() -> str:
            async with asyncio.timeout(PATIENCE_S), hermes_exec.open(backend, carrier=carrier, audit=False) as terminal:
                result = await terminal.run(command)
                return result.stdout_text + result.stderr_text

        return asyncio.run(once())

    return run


@pytest.mark.parametrize("carrier", ["guest", "plain"])
def test_commands_of_a_terminal_are_under_its_policy(under: Callable[..., str], carrier: str) -> None:
    command = "(: >/open/x) 2>/dev/null || echo refused; echo x >/tmp/x && cat /tmp/x"
    assert under("landlocked", command, carrier) == "refused\nx\n"
    assert under("bounded", command, carrier) == "x\n"


@pytest.mark.parametrize("carrier", ["guest", "plain"])
def test_its_bounds_and_its_covers_hold(under: Callable[..., str], carrier: str) -> None:
    assert under("bounded", "ulimit -n; cat /proc/version 2>/dev/null | wc -c; pwd", carrier) == "77\n0\n/tmp\n"


def test_a_guest_is_not_started_twice(under: Callable[..., str]) -> None:
    """The launcher and the guest are one process, for an interpreter takes long to start."""
    assert under("landlocked", "cat /proc/[0-9]*/comm | grep -c python") == "2\n"  # the guest and its keeper


def test_a_policy_that_cannot_be_enforced_opens_nothing(under: Callable[..., str]) -> None:
    with pytest.raises(PlaceUnavailable, match="cannot be confined: landlock: ABI version 99 is needed"):
        under("impossible", "echo ran", "guest")


def test_an_unknown_policy_is_an_error(under: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match="no policy 'none'"):
        under("none", "true")


def test_a_policy_is_for_this_machine(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    backend = BubblewrapBackend(BubblewrapProfile(policy="landlocked"), Box("elsewhere"))
    with pytest.raises(Unsupported, match="box:elsewhere"):
        asyncio.run(backend.open())


def test_a_profile_says_what_is_different_from_its_policy(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    require("Landlock", "the policy requires it", usable=this_machine().landlock_abi > 0)
    different = {"limits": {"open_files": 99}, "environment": {"set": {"HOME": "/workspace", "WHO": "me"}}}
    profile = BubblewrapProfile(policy="workspace", policy_overrides=different)

    async def told() -> str:
        async with asyncio.timeout(PATIENCE_S), hermes_exec.open(BubblewrapBackend(profile), audit=False) as terminal:
            return (await terminal.run("ulimit -n; echo $WHO")).stdout_text

    assert asyncio.run(told()) == "99\nme\n"


def test_what_is_different_from_a_policy_is_checked_like_the_policy(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    profile = BubblewrapProfile(policy="workspace", policy_overrides={"limits": {"memmory": 1}})
    with pytest.raises(ConfigError, match="unknown key 'memmory'"):
        asyncio.run(BubblewrapBackend(profile).open())


def test_without_a_policy_nothing_is_different_from_it() -> None:
    with pytest.raises(ValueError, match="has no effect without a 'policy'"):
        BubblewrapProfile(policy_overrides={"limits": {}})


@pytest.mark.parametrize("other", [{"root": "/x"}, {"network": "host"}, {"space": 1}, {"user": 1}])
def test_beside_a_policy_nothing_else_decides(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="so .* has no effect"):
        BubblewrapProfile(policy="landlocked", **other)
