"""From a policy to the launch specification of a local sandbox."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_exec.config import registry
from hermes_exec.errors import ConfigError, Unsupported, UsageError
from hermes_exec_backends.sandbox import Limits
from hermes_exec_backends.sandbox.host import ControlGroups, Machine, this_machine
from hermes_exec_policies.canaries.deviations import find_deviations
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render import bpf
from hermes_exec_policies.render.filter import build_filter
from hermes_exec_policies.start_program import LOCAL, start
from tests.conftest import require_part

SKILL = "skill-validate"


@pytest.fixture
def host() -> Machine:
    """This machine, with everything that a policy asks for."""
    return replace(
        this_machine(), uid=0, landlock_abi=7, seccomp=True, user_namespaces="", versions={"bwrap": "0.11.0"},
        groups=ControlGroups(memory="cgroup v2", processes="cgroup v2"),
    )  # fmt: skip


def test_the_specification_holds_the_filter_that_ships(host: Machine) -> None:
    wanted = build_filter(load_policy(SKILL))
    assert wanted is not None
    assert build_confinement(load_policy(SKILL), host)[0].seccomp == bpf.load_program(wanted)


def test_nothing_of_the_machine_is_seen_but_what_the_policy_lists(host: Machine) -> None:
    made, _ = build_confinement(load_policy(SKILL), host)
    seen = {bind.target for bind in made.binds} | {path for path, _ in made.links}
    assert seen <= {*load_policy(SKILL).files.run, *load_policy(SKILL).files.read}
    assert not any(bind.writable for bind in made.binds)


def test_each_sandbox_of_a_skill_has_a_user_of_its_own(host: Machine) -> None:
    users = {build_confinement(load_policy(SKILL), host)[0].uid for _ in range(8)}
    assert all(user is not None and 60000 <= user < 65000 for user in users)
    assert len(users) > 1


def test_an_ordinary_user_stays_who_it_is(host: Machine) -> None:
    assert build_confinement(load_policy(SKILL), replace(host, uid=1000))[0].uid is None


def test_only_variables_of_the_policy_are_given(host: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("TERM", "dumb")
    assert dict(build_confinement(load_policy(SKILL), host)[0].env) == {
        **load_policy(SKILL).environment.set,
        "HERMES_LANDLOCK": "1",
    }
    assert "HERMES_LANDLOCK" not in dict(build_confinement(load_policy("open"), host)[0].env)
    assert dict(build_confinement(load_policy("workspace"), host)[0].env)["TERM"] == "dumb"
    assert "AWS_SECRET_ACCESS_KEY" not in dict(build_confinement(load_policy("workspace"), host)[0].env)


def test_a_folder_that_is_given_takes_the_place_of_the_one_in_memory(host: Machine, tmp_path: Path) -> None:
    made, _ = build_confinement(load_policy(SKILL), host, writable={str(tmp_path): "/app/data"})
    (bind,) = (bind for bind in made.binds if bind.target == "/app/data")
    assert (bind.source, bind.writable, bind.executable) == (str(tmp_path), True, False)
    assert "/app/data" not in {folder.target for folder in made.tmpfs}


@pytest.mark.parametrize("target", ["/etc", "/app", "/app/database", "/usr/lib/x"])
def test_a_folder_is_never_writable_where_the_policy_does_not_say_so(
    host: Machine, target: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"allows no folder at {target}"):
        build_confinement(load_policy(SKILL), host, writable={str(tmp_path): target})


def test_a_skill_is_seen_read_only_below_its_folder(host: Machine, tmp_path: Path) -> None:
    made, _ = build_confinement(load_policy(SKILL), host, readonly={str(tmp_path): "/app/skills/mine"})
    (bind,) = (bind for bind in made.binds if bind.target == "/app/skills/mine")
    assert not bind.writable
    assert made.landlock is not None
    assert "/app/skills" in {rule.path for rule in made.landlock.paths}


def test_landlock_has_no_rule_for_what_is_not_there(host: Machine) -> None:
    made, _ = build_confinement(load_policy(SKILL), host)
    assert made.landlock is not None
    assert "/app/skills" not in {rule.path for rule in made.landlock.paths}


def test_what_a_required_rule_rests_on_may_not_be_lacking(host: Machine) -> None:
    assert build_confinement(load_policy(SKILL), host)[0].required == {"seccomp", "landlock", "rlimits"}
    assert build_confinement(load_policy("hpc"), host)[0].required == {"seccomp", "rlimits"}


def test_without_control_groups_memory_is_a_limit_of_each_process(host: Machine) -> None:
    bare = build_confinement(load_policy(SKILL), replace(host, groups=ControlGroups()))[0]
    assert {name: soft for name, soft, _ in bare.rlimits}["as"] == 512 << 20
    assert "as" not in {name for name, _, _ in build_confinement(load_policy(SKILL), host)[0].rlimits}


@pytest.mark.parametrize("limited", [True, False], ids=["limited", "without limits"])
def test_a_sandbox_whose_memory_no_control_group_holds_is_amiss(limited: bool) -> None:
    require_part("bwrap", "it makes the sandboxes")
    require_part("Landlock", "the policies of skills require it", usable=this_machine().landlock_abi > 0)
    if not this_machine().groups.memory:
        pytest.skip("needs a control group for memory. Try: run the tests as root")
    made, limits = build_confinement(load_policy(SKILL), this_machine())

    async def seen() -> list[str]:
        async with await start(LOCAL, made, ["/bin/true"], limits=limits if limited else Limits()) as run:
            return find_deviations(load_policy(SKILL), made, run.facts)

    assert asyncio.run(seen()) == ([] if limited else ["limits.memory: it is in no control group of its own"])


@pytest.mark.parametrize(("name", "counted"), [(SKILL, False), ("workspace", True)])
def test_without_control_groups_memory_that_nothing_counts_is_kept_away_where_its_limit_is_required(
    host: Machine, name: str, counted: bool
) -> None:
    wanted = build_filter(load_policy(name), counted=counted)
    assert wanted is not None
    assert build_confinement(load_policy(name), replace(host, groups=ControlGroups()))[0].seccomp == bpf.load_program(
        wanted
    )


def test_a_machine_that_cannot_enforce_a_required_rule_gets_no_specification(host: Machine) -> None:
    with pytest.raises(Unsupported, match="lsm"):
        build_confinement(load_policy(SKILL), replace(host, landlock_abi=0, apparmor=False, profiles=()))


def test_a_backend_asks_for_a_policy_by_its_name() -> None:
    with pytest.raises(ConfigError, match="no policy is called 'skil-run'"):
        registry.find_confinement("skil-run")


def test_without_registered_policies_nothing_is_confined(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry_points(_: str) -> dict[str, object]:
        return {}

    monkeypatch.setattr(registry, "own_entry_points", no_entry_points)
    with pytest.raises(Unsupported, match="'skill-run' cannot be enforced: no distribution registers"):
        registry.find_confinement("skill-run")


def test_open_gives_every_variable_and_namespaces_nothing_but_users(host: Machine) -> None:
    made, limits = build_confinement(load_policy("open"), host)
    assert dict(made.env) == dict(os.environ)
    assert made.namespaces == {"user"}
    assert made.landlock is None
    assert made.seccomp == b""
    assert limits.wall_s is None
