"""What holds a rule on which machine, and what is refused where nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermes_exec.errors import Unsupported, UsageError
from hermes_exec_backends.sandbox.host import ControlGroups, Machine, landlock_abi, this_machine
from hermes_exec_policies.enforcers import SANDBOX_KINDS
from hermes_exec_policies.explain import RuleStatus, describe_rules, explain_policy, has_rule, refuse_unless_enforceable
from hermes_exec_policies.folders import SharedFolder, with_folders
from hermes_exec_policies.load import list_shipped_policies, load_policy
from hermes_exec_policies.rule_names import RULES

MODERN = Machine(
    kernel="6.12.0",
    machine="x86_64",
    boot_id="0",
    uid=0,
    lsm=("landlock", "apparmor"),
    landlock_abi=6,
    apparmor=True,
    profiles=("hermes-exec-skill-validate",),
    seccomp=True,
    user_namespaces="",
    groups=ControlGroups(memory="cgroup v2", processes="cgroup v2", cpus="cgroup v2"),
    versions={"bwrap": "0.11.0", "docker engine": "28.0", "apptainer": "1.4.5"},
    sysctls={},
)
OLD = replace(MODERN, lsm=(), landlock_abi=0, apparmor=False, profiles=(), groups=ControlGroups(), uid=1000)


def of(rule: str, host: Machine, place: str = "bubblewrap", policy: str = "skill-validate") -> RuleStatus:
    (found,) = (verdict for verdict in explain_policy(load_policy(policy), place, host) if verdict.rule == rule)
    return found


@pytest.mark.parametrize("place", SANDBOX_KINDS)
@pytest.mark.parametrize("name", list_shipped_policies())
def test_every_rule_that_a_policy_has_gets_a_verdict_in_the_order_of_the_list(name: str, place: str) -> None:
    rules = [verdict.rule for verdict in explain_policy(load_policy(name), place, MODERN)]
    assert rules == [rule for rule in RULES if has_rule(load_policy(name), rule)]


def test_open_has_no_rule_at_all() -> None:
    assert describe_rules(load_policy("open")) == {}


def test_a_modern_machine_holds_every_required_rule_of_a_skill() -> None:
    verdicts = explain_policy(load_policy("skill-validate"), "bubblewrap", MODERN)
    assert [verdict.rule for verdict in verdicts if not verdict.held_by] == []
    assert refuse_unless_enforceable(load_policy("skill-validate"), "bubblewrap", MODERN)


def test_a_required_rule_that_nothing_holds_refuses_and_tells_what_mends_it() -> None:
    with pytest.raises(
        Unsupported, match=r"cannot be enforced here: lsm \(Landlock: the kernel runs without it"
    ) as error:
        refuse_unless_enforceable(load_policy("skill-validate"), "bubblewrap", OLD)
    assert "lsm=landlock" in error.value.remedy


def test_a_best_effort_rule_that_nothing_holds_refuses_nothing() -> None:
    policy = load_policy(
        "skill-validate", {"best_effort": ["lsm", "user.unique", "limits.cpus", "limits.pending_signals"]}
    )
    verdicts = refuse_unless_enforceable(policy, "bubblewrap", OLD)
    assert [verdict.rule for verdict in verdicts if not verdict.held_by] == ["user.unique", "lsm", "limits.cpus"]


@pytest.mark.parametrize(
    ("groups", "by"),
    [
        (ControlGroups(memory="cgroup v2"), "cgroup v2"),
        (ControlGroups(memory="cgroup v1"), "cgroup v1"),
        (ControlGroups(), "the address space of each process"),
    ],
)
def test_a_limit_is_held_by_the_best_that_there_is(groups: ControlGroups, by: str) -> None:
    assert of("limits.memory", replace(MODERN, groups=groups)).held_by == (by,)


def test_without_groups_processes_are_watched_from_outside() -> None:
    assert of("limits.processes", replace(MODERN, groups=ControlGroups())).held_by == (
        "a watchdog outside, a moment later",
    )


def test_apparmor_counts_only_where_its_profile_is_loaded() -> None:
    assert "AppArmor (profile hermes-exec-skill-validate)" in of("lsm", MODERN).held_by
    assert of("lsm", replace(MODERN, profiles=("docker-default",), landlock_abi=0)).held_by == ()


def test_an_old_landlock_does_not_count_for_what_it_cannot_hold() -> None:
    assert not any("Landlock" in each for each in of("network.isolated", replace(MODERN, landlock_abi=3)).held_by)
    assert any("Landlock" in each for each in of("files.write", replace(MODERN, landlock_abi=3)).held_by)


def test_where_user_namespaces_are_forbidden_an_ordinary_user_is_told_what_allows_them() -> None:
    host = replace(OLD, user_namespaces="forbidden", sysctls={"kernel.unprivileged_userns_clone": "0"})
    verdict = of("processes.hidden", host)
    assert verdict.held_by == ()
    assert "sudo sysctl -w kernel.unprivileged_userns_clone=1" in {means.remedy for means in verdict.lacking}


def test_without_bubblewrap_nothing_holds_there() -> None:
    verdicts = explain_policy(load_policy("skill-validate"), "bubblewrap", replace(MODERN, versions={}))
    assert not any(verdict.held_by for verdict in verdicts)
    assert {means.remedy for verdict in verdicts for means in verdict.lacking} == {"apt-get install bubblewrap"}


@pytest.mark.parametrize("place", ["modal", "daytona"])
def test_what_only_a_vendor_enforces_is_declared_never_enforced(place: str) -> None:
    verdict = of("network.isolated", MODERN, place)
    assert verdict.status == "declared"
    assert not any(each.status == "enforced" for each in explain_policy(load_policy("skill-validate"), place, MODERN))


def test_hosts_by_name_are_refused_where_no_proxy_enforces_them() -> None:
    policy = load_policy("skill-run", {"network": {"access": "hosts", "hosts": ["pypi.org"]}})
    assert of("network.hosts", MODERN, "bubblewrap", "skill-hosts").status == "enforced"
    for place in SANDBOX_KINDS.keys() - {"bubblewrap"}:
        with pytest.raises(Unsupported, match=r"network\.hosts"):
            refuse_unless_enforceable(policy, place, MODERN)


@pytest.mark.parametrize("place", ["bubblewrap", "docker", "singularity"])
def test_a_namespace_alone_isolates_sockets_of_the_internet_families(place: str) -> None:
    held = of("network.isolated", MODERN, place, "skill-script").held_by
    assert len(held) == 1
    assert "network namespace" in held[0]
    assert len(of("network.isolated", MODERN, place, "skill-run").held_by) == 3


def test_an_unknown_kind_of_place_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="the nearest known kind is 'bubblewrap'"):
        explain_policy(load_policy("open"), "bubblewarp", MODERN)


def test_the_facts_of_this_machine_are_those_of_this_machine() -> None:
    host = this_machine()
    assert host.landlock_abi == landlock_abi()
    assert host.boot_id
    assert host.kernel
    assert host.facts()["groups"].keys() == {"memory", "processes", "cpus"}


def test_a_granted_folder_that_is_written_to_is_told_to_have_no_bound() -> None:
    granted = with_folders(load_policy("skill-run"), [SharedFolder("archive", writable=True), SharedFolder("notes")])
    says = {verdict.rule: verdict.says for verdict in explain_policy(granted, "bubblewrap", MODERN)}
    for rule in ("limits.disk", "limits.inodes"):
        assert says[rule].endswith(", except in /app/folders/archive, which is a folder of the machine without a limit")
    assert not any(
        "without a limit" in verdict.says for verdict in explain_policy(load_policy("skill-run"), "bubblewrap", MODERN)
    )
