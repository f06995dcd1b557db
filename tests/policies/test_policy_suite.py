"""The suite of attempts itself, run where it can do no harm: in a bare sandbox, which lets most of them work."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.expected import CANARIES, CONTROL_ATTEMPTS, canaries_of
from hermes_exec_policies.canaries.judge import Proof, judge
from hermes_exec_policies.load import load_policy
from tests.conftest import require_part

NOT_HERE = {"limits-time", "limits-output", "limits-memory"}
"""Nothing would end them."""
BARE = (
    "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink",
    "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/app/data",
    "--uid", "1000", "--gid", "1000",
)  # fmt: skip
LIMITS = {
    "open_files": 64, "file_size": 1 << 20, "disk": 1 << 20, "shared_memory": 1 << 20, "inodes": 32,
    "locked_memory": 1 << 12, "processes": 4, "memory": 1 << 20, "cpu_time": 60.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def reported() -> bytes:
    """What the suite reports of a sandbox without a filter, limits or a security module."""
    bwrap = require_part("bwrap", "something has to keep the attempts in")
    names = [canary.name for canary in CANARIES if canary.name not in NOT_HERE]
    configuration: dict[str, object] = {
        "nonce": "n",
        "label": "",
        "attempts": [*CONTROL_ATTEMPTS, *names],
        "write": ["/app/data"],
        "scratch": ["/dev/shm"],
        "folders": [],
        "variables": ["PATH", "PWD"],
        "limits": LIMITS,
        "hold": 0,
        "outside": {
            "secret": "terces", "name": "7c1f0e5b", "file": "/no/such/file", "pid": 4194303, "tcp": 1,
            "abstract": "canary", "homes": [], "socket": "/no/such/socket", "shm": "none",
        },
    }  # fmt: skip
    argv = [bwrap, *BARE, *program.suite_argv("/usr/bin/python3", configuration)]
    done = subprocess.run(
        argv, check=False, capture_output=True, stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin"}, timeout=50
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def outcomes(reported: bytes) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in reported.splitlines()]
    return {line["name"]: line for line in lines if "name" in line}


def judged(reported: bytes) -> Proof:
    return judge(
        reported, [each for each in canaries_of(load_policy("skill-validate")) if each.name not in NOT_HERE], "n"
    )


def test_every_control_works(reported: bytes) -> None:
    assert {name: outcomes(reported)[name]["outcome"] for name in CONTROL_ATTEMPTS} == dict.fromkeys(
        CONTROL_ATTEMPTS, "worked"
    )


def test_no_attempt_fails_by_a_fault_of_its_own(reported: bytes) -> None:
    assert not {name: each for name, each in outcomes(reported).items() if each["outcome"] in {"error", "hung"}}


def test_without_a_filter_every_attempt_that_tells_one_tells_that_it_is_missing(reported: bytes) -> None:
    skill = canaries_of(load_policy("skill-validate"))
    alone = [canary for canary in skill if canary.layer == "seccomp" and canary.name.startswith("kernel-")]
    missing_here = {38}  # a kernel that lacks the call itself looks like a filter
    seen = outcomes(reported)
    fooled = [
        canary.name
        for canary in alone
        if seen[canary.name].get("errno") in canary.errnos and seen[canary.name]["errno"] not in missing_here
    ]
    assert not fooled


def test_the_judge_names_the_rules_that_a_bare_sandbox_does_not_hold(reported: bytes) -> None:
    proof = judged(reported)
    assert proof.verdict.value == "broken"
    assert {"syscalls.filtered", "syscalls.writable_code", "network.sockets", "files.run", "lsm"} <= {
        *proof.broken_rules
    }


def test_the_judge_sees_the_layers_that_a_bare_sandbox_has(reported: bytes) -> None:
    assert {"mounts", "network namespace", "process namespace"} <= {*judged(reported).layers}
    assert not {"seccomp", "noexec mounts", "security module", "limits of a process"} & {*judged(reported).layers}
