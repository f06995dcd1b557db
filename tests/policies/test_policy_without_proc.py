"""Where the kernel mounts no new /proc, as in a container, a sandbox has none, and everything else holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_backends.sandbox.host import Machine, this_machine
from hermes_exec_policies.canaries import prove as proving
from hermes_exec_policies.canaries.expected import CANARIES, NEEDS_PROC
from hermes_exec_policies.canaries.judge import Proof, Verdict
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.explain import explain_policy
from hermes_exec_policies.load import load_policy, override_policy
from tests.conftest import require_part

if TYPE_CHECKING:
    from hermes_exec_backends.sandbox import Confinement

POLICY = override_policy(
    load_policy("skill-validate"), {"limits": dict.fromkeys(("time", "output", "memory", "processes"), "unlimited")}
)


@pytest.fixture
def host() -> Machine:
    require_part("bwrap", "it makes the sandboxes")
    require_part("Landlock", "the policies of skills require it", usable=this_machine().landlock_abi > 0)
    return replace(this_machine(), proc="parts of it are covered")


def shown(made: Confinement, host: Machine) -> Proof:
    return asyncio.run(proving.run_attempts(POLICY, made, host))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_sandbox_without_a_proc_is_proven(host: Machine) -> None:
    made, _ = build_confinement(POLICY, host)
    proof = shown(made, host)
    assert not made.proc
    assert [each for each in proof.judged if each.verdict is not Verdict.HELD] == []
    assert not NEEDS_PROC & {each.name for each in proof.judged}
    assert {"mounts", "seccomp", "security module", "noexec mounts"} <= set(proof.layers)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("lost", "rule"),
    [
        ({"seccomp": b""}, "syscalls.filtered"),
        ({"landlock": None}, "lsm"),
        ({"namespaces": frozenset({"user", "pid", "ipc", "uts", "cgroup"})}, "network.isolated"),
        ({"namespaces": frozenset({"user", "net", "ipc", "uts", "cgroup"})}, "processes.hidden"),
        ({"namespaces": frozenset({"user", "net", "pid", "uts", "cgroup"})}, "processes.ipc"),
    ],
)
def test_the_loss_of_a_layer_is_noticed_there_as_well(host: Machine, lost: dict[str, Any], rule: str) -> None:
    made, _ = build_confinement(POLICY, host)
    proof = shown(replace(made, **lost), host)
    assert proof.verdict is Verdict.BROKEN
    assert rule in proof.broken_rules


def test_what_proc_tells_is_held_by_its_absence(host: Machine) -> None:
    (masked,) = (each for each in explain_policy(POLICY, "bubblewrap", host) if each.rule == "files.masked")
    assert masked.held_by[0] == "no /proc at all"


def test_every_attempt_that_is_left_out_there_exists() -> None:
    assert {each.name for each in CANARIES} >= NEEDS_PROC
