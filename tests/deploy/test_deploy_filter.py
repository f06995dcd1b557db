"""The filter that the agent's container starts under: rendered from its policy, and no wider than it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render import oci
from hermes_exec_policies.render.filter import build_filter
from hermes_exec_policies.syscalls import default_syscalls

DEPLOY = Path(__file__).parents[2] / "deploy"
POLICY = load_policy(str(DEPLOY / "hermes-agent-core.toml"))


@pytest.mark.parametrize("machine", oci.ARCHITECTURES)
def test_the_committed_filter_is_what_the_policy_is_rendered_to(machine: str) -> None:
    committed = json.loads((DEPLOY / "seccomp.json").read_text(encoding="utf-8"))
    wanted = build_filter(POLICY)
    assert wanted is not None
    rendered = json.loads(oci.render(wanted, machine))
    assert committed.pop("architectures") == [*oci.ARCHITECTURES.values()], "renew it: ./dev generate"
    assert committed == {name: value for name, value in rendered.items() if name != "architectures"}


def test_it_adds_to_an_engines_default_nothing_but_what_makes_a_sandbox() -> None:
    assert POLICY.calls - default_syscalls() == {"unshare", "mount", "umount2", "pivot_root", "sethostname"}
