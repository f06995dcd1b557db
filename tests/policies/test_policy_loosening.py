"""Two policies compared: no change that permits more is taken for harmless."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec_policies.load import diff_policies, list_shipped_policies, load_policy, override_policy
from hermes_exec_policies.loosening import list_loosened

SHIPPED = [load_policy(name) for name in list_shipped_policies()]


@given(st.sampled_from(SHIPPED), st.sampled_from(SHIPPED))
def test_each_difference_is_looser_in_one_direction_at_least(one: Any, two: Any) -> None:
    there = {key for key, _, _ in list_loosened(one, two)}
    back = {key for key, _, _ in list_loosened(two, one)}
    same_calls = {"syscalls.remove", "syscalls.add"} if one.calls == two.calls else set[str]()
    assert there | back == {key for key, _, _ in diff_policies(one, two)} - same_calls
    assert list_loosened(one, one) == []


@pytest.mark.parametrize(
    ("change", "loosened"),
    [
        ({"limits": {"processes": 3}}, []),
        ({"limits": {"processes": 1 << 20}}, ["limits.processes"]),
        ({"limits": {"processes": "unlimited"}}, ["limits.processes"]),
        ({"files": {"hidden": False}}, ["files.hidden"]),
        ({"files": {"read": ["/"]}}, ["files.read"]),
        ({"files": {"read": []}}, []),
        ({"files": {"run": []}}, ["files.run"]),
        ({"network": {"access": "hosts", "hosts": ["a.test"]}}, ["network.access", "network.hosts"]),
        ({"environment": {"set": {"LD_PRELOAD": "/tmp/x.so"}}}, ["environment.set.LD_PRELOAD"]),
        ({"syscalls": {"add": ["bpf"]}}, ["syscalls.add"]),
        ({"best_effort": ["lsm", "files.hidden"]}, ["best_effort"]),
        ({"user": {"ordinary": False}}, ["user.ordinary"]),
    ],
)  # fmt: skip
def test_what_permits_more_is_named(change: dict[str, Any], loosened: list[str]) -> None:
    before = load_policy("skill-run")
    found = [key for key, _, _ in list_loosened(before, override_policy(before, change))]
    assert [each for each in found if each in loosened] == loosened
    assert loosened or not found
