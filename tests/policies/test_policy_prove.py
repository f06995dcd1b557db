"""Proofs made here: what holds, what is noticed when a layer is missing, and what is remembered."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Unsupported
from hermes_exec_backends.sandbox import bounds
from hermes_exec_backends.sandbox.host import ControlGroups, Machine, this_machine
from hermes_exec_policies.canaries import prove as proving
from hermes_exec_policies.canaries.evidence import ProofRecord
from hermes_exec_policies.canaries.judge import AttemptVerdict, Proof, Verdict
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.load import load_policy, override_policy
from tests.conftest import require_part
from tests.rigs.layers import LAYERS, QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.guest.limits import cgroups
    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_policies.model import Policy

SKILL = "skill-validate"


@pytest.fixture(autouse=True)
def machine() -> None:
    require_part("bwrap", "it makes the sandboxes")
    require_part("Landlock", "the policies of skills require it", usable=this_machine().landlock_abi > 0)


@functools.cache
def quick() -> Policy:
    return override_policy(load_policy(SKILL), QUICK)


def shown(policy: Policy, specification: Confinement) -> Proof:
    return asyncio.run(proving.run_attempts(policy, specification, this_machine()))


def specified(policy: Policy) -> Confinement:
    return build_confinement(policy, this_machine())[0]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["skill-validate", "skill-run", "skill-script", "workspace", "hpc"])
def test_a_shipped_policy_is_proven_here(name: str) -> None:
    proof = shown(load_policy(name), specified(load_policy(name)))
    assert [each for each in proof.judged if each.verdict is not Verdict.HELD] == []
    assert proof.verdict is Verdict.HELD, proof.invalid


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_proof_shows_every_layer_by_what_it_alone_stops() -> None:
    assert set(shown(quick(), specified(quick())).layers) == {
        "mounts", "noexec mounts", "security module", "seccomp", "network namespace", "process namespace",
        "IPC namespace", "user", "capabilities", "no_new_privs", "environment", "limits of a process",
        "folders in memory",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_loss_of_a_layer_is_noticed(layer: str) -> None:
    lose, rule = LAYERS[layer]
    if layer == "user":
        require_part("root", "only root can be root in a sandbox", usable=os.geteuid() == 0)
    proof = shown(quick(), lose(specified(quick())))
    assert proof.verdict is Verdict.BROKEN
    assert rule in proof.broken_rules


def test_a_rule_that_does_not_hold_refuses_the_sandbox_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = ProofRecord(
        "mine", "0", "bubblewrap", "0", {}, Proof((AttemptVerdict("a", "lsm", "", Verdict.BROKEN, "worked"),)), 0.0
    )
    assert not evidence.holds
    assert "these rules do not hold: lsm" in str(evidence.refusal())


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This machine without control groups: a watchdog looks what processes use."""

    def none(_: bytes) -> dict[str, cgroups.CgroupParent]:
        return {}

    monkeypatch.setattr(bounds, "_homes", none)
    return replace(this_machine(), groups=ControlGroups())


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_memory_that_belongs_to_no_process_cannot_be_had_where_nothing_counts_it(no_groups: Machine) -> None:
    policy = override_policy(
        load_policy(SKILL), {"limits": dict.fromkeys(("time", "output", "processes"), "unlimited")}
    )
    proof = asyncio.run(proving.run_attempts(policy, build_confinement(policy, no_groups)[0], no_groups))
    assert proof.verdict is Verdict.HELD, (proof.invalid, proof.broken_rules)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_memory_that_nothing_counts_is_noticed(no_groups: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "_HOLD_S", 0.1)  # nobody will look
    policy = override_policy(
        load_policy(SKILL), {"limits": dict.fromkeys(("time", "output", "processes"), "unlimited")}
    )
    counted = replace(
        build_confinement(policy, no_groups)[0], seccomp=build_confinement(policy, this_machine())[0].seccomp
    )
    proof = asyncio.run(proving.run_attempts(policy, counted, no_groups))
    assert proof.broken_rules == ("limits.memory",)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_attempts_that_do_not_end_in_time_are_told_to_be_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "_SUITE_S", 0.05)  # less than an interpreter needs for a hundred attempts
    proof = shown(quick(), specified(quick()))
    assert proof.verdict is Verdict.INVALID
    assert proof.invalid.startswith("too slow: the attempts did not end within 0.05 s; the suite ")


def test_no_attempts_are_made_in_a_place_that_is_not_known_to_them() -> None:
    with pytest.raises(Unsupported, match="modal: no attempts can be made there"):
        asyncio.run(proving.gather_evidence("modal", quick()))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_proof_that_held_is_remembered_and_one_of_another_specification_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = asyncio.run(proving.prove(quick()))
    again = asyncio.run(proving.prove(quick()))
    assert (first.remembered, again.remembered) == (False, True)
    assert again.proof == first.proof
    other = override_policy(quick(), {"limits": {"open_files": 128}})
    assert asyncio.run(proving.prove(other)).remembered is False


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_record_that_was_tampered_with_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asyncio.run(proving.prove(quick()))
    (record,) = (tmp_path / "hermes_exec" / "proofs").iterdir()
    record.write_text(record.read_text().replace('"held"', '"passed"'))
    assert asyncio.run(proving.prove(quick())).remembered is False


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_command_prints_each_attempt_and_what_it_proves(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-m", "hermes_exec", "policy", "prove", "bubblewrap", "--policy", "hpc"]
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "kernel-keyctl" in done.stdout
    assert "attempts held" in done.stdout.splitlines()[-1]
