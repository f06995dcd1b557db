"""A terminal under ``shared-workspace``: it has the processes of the place, and none of what is theirs."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import hermes_exec.sync as hx
from hermes_exec.errors import Unsupported
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.explain import refuse_unless_enforceable
from hermes_exec_policies.load import load_policy
from tests.conftest import require_part

if TYPE_CHECKING:
    from collections.abc import Generator

SECRET = "of-the-agent-itself"
POLICY = "shared-workspace"


@pytest.fixture
def shell() -> Generator[hx.Terminal]:
    require_part("bwrap", "it makes the sandboxes")
    require_part("Landlock", "the policy requires it", usable=this_machine().landlock_abi > 0)
    with hx.open(BubblewrapBackend(BubblewrapProfile(policy=POLICY)), audit=False) as terminal:
        yield terminal


@contextmanager
def neighbour(user: int) -> Generator[int]:
    """A process outside of the very user that runs the shell, as the agent is in a container."""
    with subprocess.Popen(
        ["/bin/sleep", "600"], env={"SECRET": SECRET}, user=user if os.geteuid() == 0 else None, stdin=subprocess.PIPE
    ) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_the_processes_of_the_place_are_seen(shell: hx.Terminal) -> None:
    with neighbour(int(shell.run("id -u").stdout_text)) as pid:
        assert "sleep" in shell.run(f"cat /proc/{pid}/comm", check=True).stdout_text


@pytest.mark.parametrize("file", ["environ", "mem", "maps", "root/etc/hostname", "cwd/etc/hostname", "fd/0"])
def test_nothing_of_another_process_of_the_same_user_can_be_opened(shell: hx.Terminal, file: str) -> None:
    with neighbour(int(shell.run("id -u").stdout_text)) as pid:
        result = shell.run(f"cat /proc/{pid}/{file}")
    assert result.exit_code != 0
    assert SECRET not in result.stdout_text + result.stderr_text
    assert "denied" in result.stderr_text or "not permitted" in result.stderr_text


def test_its_own_processes_are_what_they_are_anywhere(shell: hx.Terminal) -> None:
    assert shell.run("sleep 600 & kill -0 $! && kill $!; cat /proc/self/comm", check=True).stdout_text == "cat\n"


def test_no_namespace_can_be_made_in_there(shell: hx.Terminal) -> None:
    assert shell.run("unshare --user true").exit_code != 0


def test_a_kernel_without_landlock_is_refused() -> None:
    host = replace(this_machine(), landlock_abi=0, apparmor=False, profiles=(), seccomp=True)
    with pytest.raises(Unsupported, match="lsm"):
        refuse_unless_enforceable(load_policy(POLICY), "bubblewrap", host)
