"""Whatever the limits of a policy are, every form of them says the same, and none of them more."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec_backends.sandbox.host import ControlGroups, this_machine
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.load import load_policy, override_policy
from hermes_exec_policies.render import docker, rlimits

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

FEW = settings(deadline=None, max_examples=50)
NONE = st.just("unlimited")
SIZE = st.integers(min_value=1, max_value=(1 << 40) - 1) | NONE
COUNT = st.integers(min_value=1, max_value=100_000) | NONE
AMOUNT = st.floats(min_value=1e-6, max_value=1000, allow_nan=False) | NONE
EACH = {
    "file_size": ("fsize", SIZE), "open_files": ("nofile", COUNT), "locked_memory": ("memlock", SIZE),
    "message_queues": ("msgqueue", SIZE), "pending_signals": ("sigpending", COUNT),
}  # fmt: skip
"""Limits of each process, and their names in setrlimit(2); those of time and dumps are another matter."""
ALL = {"memory": SIZE, "processes": COUNT, "cpus": AMOUNT, "disk": SIZE, "inodes": COUNT, "shared_memory": SIZE}
LIMITS = st.fixed_dictionaries({**{name: kind for name, (_, kind) in EACH.items()}, **ALL, "cpu_time": AMOUNT})

ANY = ControlGroups(memory="cgroup v2", processes="cgroup v2", cpus="cgroup v2")


@cache
def _skill() -> Policy:
    return load_policy("skill-validate")


def mine(limits: dict[str, Any]) -> Policy:
    return override_policy(_skill(), {"limits": limits})


@FEW
@given(limits=LIMITS)
def test_a_limit_of_each_process_is_the_policys_or_there_is_none(limits: dict[str, Any]) -> None:
    found = {name: (soft, hard) for name, soft, hard in rlimits.rlimits(mine(limits))}
    for name, (kernels, _) in EACH.items():
        assert found.get(kernels, ("unlimited",) * 2) == (limits[name],) * 2
    soft, hard = found.get("cpu", (0, 0))
    assert (soft > 0) == (limits["cpu_time"] != "unlimited")
    assert soft <= hard


@FEW
@given(limits=LIMITS)
def test_control_groups_of_both_versions_are_told_the_same(limits: dict[str, Any]) -> None:
    policy = mine(limits)
    old, new = dict(rlimits.cgroup(policy, 1)), dict(rlimits.cgroup(policy, 2))
    assert old.get("memory.limit_in_bytes") == old.get("memory.memsw.limit_in_bytes") == new.get("memory.max")
    assert new.get("memory.max", "unlimited") == str(limits["memory"])
    assert old.get("pids.max", "unlimited") == new.get("pids.max", "unlimited") == str(limits["processes"])
    quota, period = old.get("cpu.cfs_quota_us"), old.get("cpu.cfs_period_us")
    assert new.get("cpu.max") == (None if quota is None else f"{quota} {period}")
    assert quota is None or int(quota) >= 1000  # the least that a kernel takes


@FEW
@given(limits=LIMITS)
def test_no_limit_of_a_container_is_left_out_or_means_none(limits: dict[str, Any]) -> None:
    host = docker.render(mine(limits), seccomp="{}", apparmor=False)["HostConfig"]
    for name, option in {"memory": "Memory", "processes": "PidsLimit", "shared_memory": "ShmSize"}.items():
        assert host.get(option, "unlimited") == limits[name]
    assert host.get("MemorySwap") == host.get("Memory")
    assert (host.get("NanoCpus", 0) > 0) == (limits["cpus"] != "unlimited")
    (folder,) = host["Tmpfs"].values()
    assert {"nosuid", "nodev", "noexec"} <= {*folder.split(",")}
    for name, option in {"disk": "size", "inodes": "nr_inodes"}.items():
        assert (f"{option}={limits[name]}" in folder.split(",")) == (limits[name] != "unlimited")


@FEW
@given(disk=SIZE, inodes=COUNT)
def test_a_folder_in_memory_is_as_large_as_the_policy_says(disk: int | str, inodes: int | str) -> None:
    host = replace(
        this_machine(), landlock_abi=7, seccomp=True, user_namespaces="", groups=ANY, versions={"bwrap": "0.8.0"}
    )
    made, _ = build_confinement(mine({"disk": disk, "inodes": inodes}), host, started=False)
    (data,) = [folder for folder in made.tmpfs if folder.target == "/app/data"]
    assert disk in {"unlimited", data.size}
    assert inodes in {"unlimited", data.inodes}
