"""The judge of attempts: what is proven, what is broken, and what is nothing at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.expected import (
    CANARIES,
    CONTROL_ATTEMPTS,
    DIFFERENT,
    EACCES,
    EINVAL,
    ENOENT,
    ENOSYS,
    EPERM,
    EROFS,
    IN_PROC,
    NEEDS_PROC,
    canaries_of,
)  # fmt: skip
from hermes_exec_policies.canaries.judge import Proof, Verdict, judge
from hermes_exec_policies.explain import has_rule
from hermes_exec_policies.load import list_shipped_policies, load_policy
from hermes_exec_policies.rule_names import RULES

if TYPE_CHECKING:
    from hermes_exec_policies.canaries.expected import Canary

PLACES = ("bubblewrap", "docker", "singularity")
BY_NAME = {canary.name: canary for canary in canaries_of(load_policy("skill-validate"))}
WRITE, SEEN, X32 = BY_NAME["files-etc"], BY_NAME["processes-see"], BY_NAME["kernel-x32"]
NONCE = "n0nce"


def report(*outcomes: dict[str, object], started: str = NONCE, ended: str | None = NONCE) -> bytes:
    """What a suite writes in which all controls worked."""
    controls: list[dict[str, object]] = [{"name": name, "outcome": "worked", "detail": ""} for name in CONTROL_ATTEMPTS]
    lines: list[dict[str, object]] = [{"started": started}, *controls, *outcomes]
    return b"".join(json.dumps(line).encode() + b"\n" for line in (*lines, *([{"ended": ended}] if ended else [])))


def outcome(canary: Canary, **how: object) -> dict[str, object]:
    return {"name": canary.name, **how}


def verdict(proof: Proof) -> str:
    return proof.verdict.value


def ended(name: str, number: int, place: str = "bubblewrap", policy: str = "skill-validate") -> str:
    """What an attempt shows that ended with an error number in a kind of place."""
    (canary,) = (each for each in canaries_of(load_policy(policy), place) if each.name == name)
    return verdict(judge(report(outcome(canary, outcome="errno", errno=number)), [canary], NONCE))


@pytest.mark.parametrize("place", PLACES)
def test_only_a_number_that_the_mechanism_gives_holds(place: str) -> None:
    numbers = (EROFS, EACCES, EPERM, ENOENT)
    assert [ended("files-etc", number, place) for number in numbers] == ["held", "held", "held", "broken"]
    assert [ended("files-run-written", number, place) for number in numbers] == ["broken", "held", "broken", "broken"]
    assert [ended("kernel-keyctl", number, place) for number in numbers] == ["broken", "broken", "held", "broken"]
    assert [ended("processes-signal", number, place) for number in (3, 1)] == ["held", "broken"]


@pytest.mark.parametrize(
    ("name", "number", "held"),
    [
        ("kernel-setuid", EPERM, ["docker"]),
        ("kernel-setuid", EINVAL, ["bubblewrap", "singularity"]),
        ("processes-terminal", ENOENT, ["bubblewrap"]),
        ("processes-terminal", EACCES, ["docker", "singularity"]),
        ("kernel-statmount", ENOSYS, ["bubblewrap", "docker", "singularity"]),
        ("kernel-keyctl", ENOSYS, ["bubblewrap", "docker", "singularity"]),
        ("kernel-ptrace", ENOSYS, []),
        ("kernel-clone3", EPERM, []),
        ("kernel-clone3", ENOSYS, ["bubblewrap", "docker", "singularity"]),
        ("kernel-x32", ENOSYS, ["docker"]),
    ],
)
def test_a_number_holds_in_the_kinds_of_place_whose_mechanisms_give_it(name: str, number: int, held: list[str]) -> None:
    assert [place for place in PLACES if ended(name, number, place) == "held"] == held


def test_a_call_that_the_filter_lets_through_is_held_by_what_comes_after_it() -> None:
    assert [ended("network-loopback", number) for number in (EPERM, 111)] == ["held", "broken"]
    for policy in ("skill-hosts", "skill-script"):
        assert [ended("network-loopback", number, policy=policy) for number in (EPERM, 111)] == ["broken", "held"]


def test_a_policy_with_a_loopback_of_its_own_must_reach_nothing_by_its_sockets() -> None:
    attempts = {each.name: each for each in canaries_of(load_policy("skill-script"))}
    isolated = {"tcp", "tcp6", "udp", "dns", "loopback", "raw", "packet", "interfaces"}
    assert {name for name, each in attempts.items() if each.rule == "network.isolated"} == {
        f"network-{each}" for each in isolated
    }
    assert {"network-netlink", "network-vsock", "network-alg", "network-abstract"} <= attempts.keys()
    assert "network-listen" not in attempts
    assert attempts["network-tcp"].errnos == frozenset({EACCES, 101})
    assert attempts["network-packet"].errnos == frozenset({EPERM})


def test_without_a_proc_what_looks_there_finds_nothing() -> None:
    found = {each.name: each.errnos for each in canaries_of(load_policy("skill-validate"), proc=False)}
    assert {name: found[name] for name in IN_PROC} == dict.fromkeys(IN_PROC, frozenset({ENOENT}))
    assert not IN_PROC & NEEDS_PROC


def test_a_number_that_was_not_to_come_is_told_beside_the_one_that_was() -> None:
    (told,) = judge(report(outcome(WRITE, outcome="errno", errno=ENOENT)), [WRITE], NONCE).judged
    assert told.ended == "ENOENT (No such file or directory), expected EACCES or EPERM or EROFS"


def test_places_differ_in_attempts_that_there_are() -> None:
    assert {name for different in DIFFERENT.values() for name in different} <= {each.name for each in CANARIES}
    assert DIFFERENT.keys() == {"docker", "singularity"}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", list_shipped_policies())
def test_every_attempt_has_a_way_to_hold(name: str, place: str) -> None:
    ways = canaries_of(load_policy(name), place)
    assert [each.name for each in ways if not (each.errnos or each.absent or each.signals or each.alone)] == []


def test_an_act_that_worked_breaks_its_rule_by_name() -> None:
    proof = judge(report(outcome(WRITE, outcome="worked", detail="/etc/x")), [WRITE], NONCE)
    assert verdict(proof) == "broken"
    assert proof.broken_rules == ("files.write",)


def test_a_failure_of_another_kind_is_no_denial() -> None:
    assert verdict(judge(report(outcome(WRITE, outcome="errno", errno=28)), [WRITE], NONCE)) == "broken"


def test_an_error_number_says_whether_the_filter_was_there() -> None:
    ptrace = BY_NAME["kernel-ptrace"]
    assert verdict(judge(report(outcome(ptrace, outcome="errno", errno=1)), [ptrace], NONCE)) == "held"
    assert verdict(judge(report(outcome(ptrace, outcome="errno", errno=3)), [ptrace], NONCE)) == "broken"


def test_what_is_not_there_holds_where_there_is_nothing_to_be_had() -> None:
    assert verdict(judge(report(outcome(SEEN, outcome="absent", detail="")), [SEEN], NONCE)) == "held"
    assert verdict(judge(report(outcome(WRITE, outcome="absent", detail="")), [WRITE], NONCE)) == "broken"


def test_the_signal_of_a_filter_holds_and_another_one_does_not() -> None:
    assert verdict(judge(report(outcome(X32, outcome="signal", signal=31)), [X32], NONCE)) == "held"
    assert verdict(judge(report(outcome(X32, outcome="signal", signal=11)), [X32], NONCE)) == "broken"


@pytest.mark.parametrize("how", [{"outcome": "hung"}, {"outcome": "error", "detail": "x"}, {"outcome": "passed"}, {}])
def test_an_attempt_that_did_not_end_as_an_attempt_proves_nothing(how: dict[str, object]) -> None:
    assert verdict(judge(report(outcome(WRITE, **how)), [WRITE], NONCE)) == "invalid"


def test_an_attempt_that_was_too_slow_is_told_to_be_that() -> None:
    proof = judge(report(outcome(WRITE, outcome="hung")), [WRITE], NONCE)
    assert (verdict(proof), proof.invalid) == ("invalid", "too slow: no end or answer in time of files-etc")


def test_an_attempt_that_is_not_reported_proves_nothing() -> None:
    assert verdict(judge(report(), [WRITE], NONCE)) == "invalid"


@pytest.mark.parametrize("control", CONTROL_ATTEMPTS)
def test_a_control_that_did_not_work_makes_the_proof_invalid(control: str) -> None:
    told = report(outcome(WRITE, outcome="errno", errno=EROFS)).replace(
        json.dumps({"name": control, "outcome": "worked", "detail": ""}).encode(),
        json.dumps({"name": control, "outcome": "errno", "errno": 13}).encode(),
    )
    proof = judge(told, [WRITE], NONCE)
    assert verdict(proof) == "invalid"
    assert control in proof.invalid


def test_a_suite_that_never_started_proves_nothing() -> None:
    assert judge(b"", [WRITE], NONCE).invalid == "the suite did not start"
    assert verdict(judge(b"", [WRITE], NONCE)) == "invalid"


def test_a_suite_that_broke_off_is_told_with_where() -> None:
    told = report({"begins": "files-etc"}, ended=None)
    assert judge(told, [WRITE], NONCE).invalid == "the suite broke off, in files-etc"


def test_a_report_of_another_run_proves_nothing() -> None:
    told = report(outcome(WRITE, outcome="errno", errno=EROFS), started="other", ended="other")
    assert verdict(judge(told, [WRITE], NONCE)) == "invalid"


@pytest.mark.parametrize("junk", [b"Traceback\n", b"[1]\n", b"{\n", b"x" * 5000 + b"\n"])
def test_a_line_that_is_no_report_makes_it_invalid(junk: bytes) -> None:
    told = junk + report(outcome(WRITE, outcome="errno", errno=EROFS))
    assert verdict(judge(told, [WRITE], NONCE)) == "invalid"


def test_a_proof_of_nothing_is_no_proof() -> None:
    assert Proof(()).verdict is Verdict.INVALID


def test_only_what_a_layer_alone_stops_shows_that_layer() -> None:
    mounts = BY_NAME["files-usr"]
    assert judge(report(outcome(mounts, outcome="errno", errno=EROFS)), [mounts], NONCE).layers == ("mounts",)
    assert judge(report(outcome(mounts, outcome="errno", errno=EACCES)), [mounts], NONCE).layers == ()


# The attempts themselves


def test_there_is_an_attempt_in_the_suite_for_each_that_is_expected() -> None:
    assert len(CANARIES) >= 60
    for name in list_shipped_policies():
        asked = [canary.name for canary in canaries_of(load_policy(name))]
        assert len(asked) == len(set(asked))
    text = program.suite_text()
    assert not [name for name in (*BY_NAME, *CONTROL_ATTEMPTS) if f'"{name}"' not in text]


@pytest.mark.parametrize("name", ["skill-validate", "skill-run", "skill-script"])
def test_every_rule_of_a_skill_but_three_has_an_attempt(name: str) -> None:
    # A unique user and what ends with the sandbox are looked at from outside; processors and signals only slow down.
    seen_otherwise = {
        "user.unique", "processes.end_together", "limits.cpus", "limits.pending_signals", "limits.message_queues",
    }  # fmt: skip
    policy = load_policy(name)
    attempted = {canary.rule for canary in canaries_of(policy)}
    assert {rule for rule in RULES if has_rule(policy, rule)} - attempted == seen_otherwise


def test_open_forbids_nothing() -> None:
    assert canaries_of(load_policy("open")) == ()


def test_a_call_that_a_policy_allows_is_no_attempt_to_break_it() -> None:
    named = {canary.name for canary in canaries_of(load_policy("workspace"))}
    assert "kernel-memfd" not in named
    assert "network-tcp" not in named
    assert "kernel-keyctl" in named


def test_every_layer_has_an_attempt_that_only_it_stops() -> None:
    assert {canary.layer for canary in canaries_of(load_policy("skill-validate"))} - {""} == {
        "mounts", "noexec mounts", "security module", "seccomp", "network namespace", "process namespace",
        "IPC namespace", "user", "capabilities", "no_new_privs", "environment", "limits of a process",
        "folders in memory",
    }  # fmt: skip


@pytest.mark.parametrize("name", list_shipped_policies())
def test_no_attempt_is_of_a_rule_that_there_is_not(name: str) -> None:
    assert {canary.rule for canary in canaries_of(load_policy(name))} <= RULES.keys()


def test_the_suite_is_one_text_that_any_argument_list_takes() -> None:
    assert len(program.suite_text().encode()) < 100_000  # the kernel takes 128 KiB in one word
    compile(program.suite_text(), "suite", "exec")
