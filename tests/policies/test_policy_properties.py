"""What holds for every policy and renderer: it is deterministic, a stricter policy gives no more, nothing slips in."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.enforcers import list_enforcers
from hermes_exec_policies.explain import explain_policy, has_rule
from hermes_exec_policies.load import load_policy, override_policy
from hermes_exec_policies.render import apparmor, apptainer, clouds, docker, landlock, rlimits
from hermes_exec_policies.render.bubblewrap import layout
from hermes_exec_policies.render.filter import build_filter
from hermes_exec_policies.render.forms import FORMS, render_all, render_form
from hermes_exec_policies.rule_names import RULES
from hermes_exec_policies.syscalls import all_syscalls, groups
from hermes_exec_policies.values import CAPABILITIES, FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_policies.model import Policy

FEW = settings(deadline=None, max_examples=25)
READ = ("/usr", "/etc/fonts", "/opt/a", "/proc")
WRITE = ("/app/data", "/srv/x/y", "/tmp")
LOOKED_AT = (*READ, *WRITE, "/", "/usr/bin", "/home/u", "/srv", "/srv/x/y/z", "/dev/null", "/dev/zero", "/etc/shadow")
TRIED: tuple[tuple[Any, ...], ...] = (
    ("mmap", 0, 4096, 7), ("mmap", 0, 4096, 3), ("mprotect", 0, 0, 4), ("chmod", 0, 0o4755),
    ("openat", 0, 0, 0o101, 0o2755),
    ("clone", 1 << 28), ("clone3",), ("openat2",), ("unshare", 1 << 28), ("socket", 1), ("socket", 2), ("socket", 16),
    ("ptrace",), ("bpf",), ("personality", 5), ("mount",), ("keyctl",),
)  # fmt: skip
"""Calls that conditions of a policy change the answer to."""
FLAGS = {  # of each table, its keys in which True, or False, allows more
    "privileges": {"none_gained": False, "namespaces": True},
    "processes": {"hidden": False, "traced": True, "terminal": True, "end_together": False},
    "environment": {"cleared": False},
    "syscalls": {"filtered": False, "writable_code": True, "set_id_files": True},
    "files": {"hidden": False, "run_written": True},
    "user": {"ordinary": False},
}
SIZES = ("memory", "disk", "shared_memory", "file_size", "locked_memory", "message_queues", "core")
COUNTS = ("processes", "inodes", "open_files", "pending_signals")
AMOUNTS = ("cpus", "cpu_time", "time")
AMOUNT = {
    **dict.fromkeys((*SIZES, *COUNTS), st.integers(1, 1 << 40)),
    **dict.fromkeys(AMOUNTS, st.floats(0.001, 1e6, allow_nan=False)),
}
TEXT = st.text(st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=["Cs", "Cc"]), max_size=20)


@cache
def base() -> Policy:
    return load_policy("skill-validate")


@dataclass(frozen=True)
class Pair:
    """Two policies, of which ``strict`` allows nothing that ``weak`` does not."""

    weak: Policy
    strict: Policy


def both(draw: st.DrawFn, values: tuple[str, ...], least: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """Some of the values, and some of those."""
    more = draw(st.lists(st.sampled_from(values), unique=True))
    fewer = [each for each in more if draw(st.booleans())]
    return sorted({*more, *least}), sorted({*fewer, *least})


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    weak: dict[str, dict[str, Any]] = {}
    strict: dict[str, dict[str, Any]] = {}
    for table, keys in FLAGS.items():
        weak[table], strict[table] = {}, {}
        for key, more in keys.items():
            weak[table][key] = draw(st.booleans())
            strict[table][key] = weak[table][key] if draw(st.booleans()) else not more
    for table, key, values in (
        ("privileges", "capabilities", CAPABILITIES), ("files", "read", READ), ("files", "write", WRITE),
        ("files", "devices", ("/dev/null", "/dev/zero")), ("syscalls", "add", ("@tracing", "bpf", "@keyrings")),
    ):  # fmt: skip
        weak[table][key], strict[table][key] = both(draw, values)
    strict["syscalls"]["remove"], weak["syscalls"]["remove"] = both(
        draw, tuple(f"@{name}" for name in sorted(groups()))
    )
    weak["files"]["run"], strict["files"]["run"] = both(draw, ("/bin", "/lib"))
    weak["files"] |= {"scratch": [], "root": draw(st.sampled_from(["read-only", "writable"]))}
    strict["files"] |= {"scratch": [], "root": draw(st.sampled_from(["read-only", weak["files"]["root"]]))}
    order = ("none", "open")
    accesses = [draw(st.sampled_from(order)) for _ in range(2)]
    families = both(draw, tuple(FAMILIES), ("unix",))
    weak["network"] = {"access": max(accesses), "sockets": families[0]}
    strict["network"] = {"access": min(accesses), "sockets": families[1]}
    ipc = sorted(draw(st.sampled_from(["private", "shared"])) for _ in range(2))
    weak["processes"]["ipc"], strict["processes"]["ipc"] = ipc[1], ipc[0]
    weak["limits"], strict["limits"] = {}, {}
    for name, amount in AMOUNT.items():
        low, high = sorted([draw(amount), draw(amount)])
        weak["limits"][name] = draw(st.sampled_from([high, "unlimited"]))
        strict["limits"][name] = low
    return Pair(override_policy(base(), weak), override_policy(base(), strict))


POLICIES = pairs().map(lambda pair: pair.weak)


@FEW
@given(policy=POLICIES)
def test_any_policy_is_rendered_to_the_same_however_it_was_written(policy: Policy) -> None:
    said = json.loads(policy.model_dump_json(exclude={"name"}))
    said["environment"]["set"] = dict(reversed(said["environment"]["set"].items()))
    said["limits"] = {name: "unlimited" if value is None else value for name, value in said["limits"].items()}
    again = override_policy(base(), dict(reversed(said.items())))
    for form in FORMS:
        assert render_form(again, form) == render_form(policy, form)
    assert all(json.loads(text) for form, text in render_all(policy).items() if form.endswith(".json"))


# A stricter policy gives no more


def rights_of_files(policy: Policy, path: str) -> int:
    """What Landlock lets be done with a path: all that is not handled, or that a rule above it gives."""
    rules = landlock.ruleset(policy)
    if rules is None:
        return landlock.ALL_FILES
    given_ = landlock.ALL_FILES & ~rules.handled_files
    for above, access in rules.paths:
        given_ |= access if above == "/" or f"{path}/".startswith(f"{above}/") else 0
    return given_


@FEW
@given(pair=pairs())
def test_landlock_gives_a_stricter_policy_no_more(pair: Pair) -> None:
    more = {path: rights_of_files(pair.strict, path) & ~rights_of_files(pair.weak, path) for path in LOOKED_AT}
    assert more == dict.fromkeys(LOOKED_AT, 0)
    weak, strict = landlock.ruleset(pair.weak), landlock.ruleset(pair.strict)
    if weak is not None:
        assert strict is not None
        assert strict.handled_network | weak.handled_network == strict.handled_network
        assert strict.scoped | weak.scoped == strict.scoped


@FEW
@given(pair=pairs(), calls=st.lists(st.sampled_from(sorted(all_syscalls())), max_size=20))
def test_the_filter_lets_a_stricter_policy_call_no_more(pair: Pair, calls: list[str]) -> None:
    weak, strict = build_filter(pair.weak), build_filter(pair.strict)
    for call, *words in (*TRIED, *((call,) for call in calls)):
        arguments = (*words, *(0,) * (6 - len(words)))
        allowed = weak is None or not weak.answer(call, arguments)
        assert allowed or (strict is not None and strict.answer(call, arguments))


def rights_in_profile(text: str, path: str) -> set[str]:
    """What a profile lets be done with a path: what a line gives, but for what one denies."""
    given_, denied = set[str](), set[str]()
    for deny, where, tail, rights in re.findall(
        r"^  (audit deny )?(/[^\s{*]*)(\S*) ([rwklmix]+),$", text, re.MULTILINE
    ):
        top = where.rstrip("/")
        within = path.startswith(f"{top}/") and "**" in tail
        if within or (path == (top or "/") and (not tail or tail.startswith("{"))):
            (denied if deny else given_).update(rights.replace("ix", "x"))
    return given_ - denied


@FEW
@given(pair=pairs())
def test_a_profile_gives_a_stricter_policy_no_more(pair: Pair) -> None:
    weak, strict = apparmor.render(pair.weak), apparmor.render(pair.strict)
    more = {path: rights_in_profile(strict, path) - rights_in_profile(weak, path) for path in LOOKED_AT}
    assert not any(more.values()), more
    for what in ("capability", "network", "mount", "umount", "pivot_root"):
        lines = [set(re.findall(rf"^  ({what}\b.*),$", text, re.MULTILINE)) for text in (weak, strict)]
        assert lines[1] <= lines[0] or what in lines[0]


def limits_in(policy: Policy) -> dict[str, float]:
    """Every bound that processes and groups are given; one that is missing is none."""
    each = rlimits.rlimits(policy, memory=True, processes=True)
    found: dict[str, float] = {name: hard for name, _, hard in each}
    for version in (1, 2):
        found |= {f"{version} {name}": float(value.split()[0]) for name, value in rlimits.cgroup(policy, version)}
    return found


@FEW
@given(pair=pairs())
def test_limits_of_a_stricter_policy_are_no_higher(pair: Pair) -> None:
    weak, strict = limits_in(pair.weak), limits_in(pair.strict)
    assert {name: value for name, value in weak.items() if strict[name] > value} == {}


@FEW
@given(pair=pairs())
def test_a_container_of_a_stricter_policy_has_no_more(pair: Pair) -> None:
    weak, strict = (docker.render(each, seccomp="", apparmor=True)["HostConfig"] for each in (pair.weak, pair.strict))
    assert (strict["CapDrop"], weak["CapDrop"]) == (["ALL"], ["ALL"])
    assert {*strict["CapAdd"]} <= {*weak["CapAdd"]}
    assert strict["NetworkMode"] in {"none", weak["NetworkMode"]}
    assert strict["ReadonlyRootfs"] >= weak["ReadonlyRootfs"]
    assert strict["IpcMode"] in {"private", weak["IpcMode"]}
    assert ("no-new-privileges:true" in strict["SecurityOpt"]) >= ("no-new-privileges:true" in weak["SecurityOpt"])
    assert strict["Tmpfs"].keys() <= weak["Tmpfs"].keys()
    assert all("noexec" in strict["Tmpfs"][path] or "noexec" not in weak["Tmpfs"][path] for path in strict["Tmpfs"])
    for name in ("Memory", "MemorySwap", "PidsLimit", "NanoCpus", "ShmSize"):
        assert name not in weak or 0 < strict[name] <= weak[name]
    ulimits = [{each["Name"]: each["Hard"] for each in host["Ulimits"]} for host in (weak, strict)]
    assert all(ulimits[1][name] <= value for name, value in ulimits[0].items())
    assert [strict["Privileged"], weak["Privileged"]] == [False, False]


@FEW
@given(pair=pairs())
def test_apptainer_shares_no_more_with_a_stricter_policy(pair: Pair) -> None:
    weak, strict = (apptainer.render(each, seccomp="/x", apparmor=True) for each in (pair.weak, pair.strict))
    taking = {
        "--containall",
        "--no-home",
        "--no-init",
        "--cleanenv",
        "--net",
        "--drop-caps",
        "--no-privs",
        "--security",
    }
    assert {*weak} & taking <= {*strict}


@FEW
@given(pair=pairs())
def test_the_local_sandbox_of_a_stricter_policy_has_no_more(pair: Pair) -> None:
    weak, strict = layout(pair.weak), layout(pair.strict)
    assert {*weak.namespaces} <= {*strict.namespaces}
    assert {*weak.masked} <= {*strict.masked}
    assert weak.whole or ({*strict.binds} <= {*weak.binds} and not strict.whole)
    folders = {folder.target: folder for folder in weak.folders}
    for folder in strict.folders:
        more = folders[folder.target]
        assert more.executable or not folder.executable
        assert more.size is None or (folder.size is not None and folder.size <= more.size)
        assert more.inodes is None or (folder.inodes is not None and folder.inodes <= more.inodes)


@FEW
@given(pair=pairs())
def test_clouds_are_asked_for_no_more_by_a_stricter_policy(pair: Pair) -> None:
    for render in (clouds.modal, clouds.daytona):
        weak, strict = numbers(render(pair.weak)), numbers(render(pair.strict))
        assert all(strict[name] <= value for name, value in weak.items())
    assert clouds.modal(pair.strict)["block_network"] >= clouds.modal(pair.weak)["block_network"]
    assert clouds.daytona(pair.strict)["network_block_all"] >= clouds.daytona(pair.weak)["network_block_all"]


def numbers(options: Mapping[str, Any]) -> dict[str, float]:
    """The limits among a cloud's options."""
    plain: dict[str, Any] = {**options, **options.get("resources", {})}
    found: dict[str, Any] = {name: value[-1] if isinstance(value, list) else value for name, value in plain.items()}
    return {name: value for name, value in found.items() if name in {"memory", "cpu", "timeout", "disk"}}


# What a policy says is asked for, or told not to be held


@FEW
@given(policy=POLICIES, place=st.sampled_from(["modal", "daytona"]))
def test_every_limit_that_a_cloud_declares_was_asked_for_and_no_higher(policy: Policy, place: str) -> None:
    declared = {verdict.rule for verdict in explain_policy(policy, place, this_machine()) if verdict.held_by}
    asked = numbers(clouds.modal(policy) if place == "modal" else clouds.daytona(policy))
    unit = {"memory": 1 << 20, "disk": 1} if place == "modal" else {"memory": 1 << 30, "disk": 1 << 30}
    for rule, name in {"memory": "memory", "cpus": "cpu", "time": "timeout", "disk": "disk"}.items():
        if f"limits.{rule}" in declared:
            assert 0 < asked[name] * unit.get(name, 1) <= getattr(policy.limits, rule)
    assert not {"files.write", "files.run", "syscalls.filtered", "privileges.capabilities"} & declared


@FEW
@given(policy=POLICIES, place=st.sampled_from(["bubblewrap", "docker", "singularity", "modal", "daytona"]))
def test_every_rule_of_a_policy_is_told_with_what_holds_it_or_with_nothing(policy: Policy, place: str) -> None:
    told = explain_policy(policy, place, this_machine())
    assert [verdict.rule for verdict in told] == [rule for rule in RULES if has_rule(policy, rule)]
    means = list_enforcers(place, policy, this_machine())
    for verdict in told:
        there = any(not each.lacking for each in means.get(verdict.rule, []))
        assert (verdict.status == "not enforceable") is not there
        assert verdict.status != "enforced" or place not in {"modal", "daytona"}


# Nothing that somebody wrote becomes an option


def variables(words: tuple[str, ...]) -> dict[str, str]:
    """What Apptainer reads of its options: each ``--env`` as the library that it reads words with does."""
    found: dict[str, str] = {}
    for flag, word in itertools.pairwise(words):
        if flag == "--env":
            plain = [word.strip('"')] if word.count("=") == 1 else next(csv.reader(io.StringIO(word)))
            found |= dict(each.split("=", 1) for each in plain)
    return found


@FEW
@given(env=st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), TEXT | st.sampled_from(
    ["a=b,LD_PRELOAD=/x", '"', 'x"', '=,"', "--bind=/:/x", "$(id)", "`id`", "a,b", " ", ""]
), max_size=4))  # fmt: skip
def test_whatever_a_variable_holds_is_that_variable_and_nothing_else(env: dict[str, str]) -> None:
    policy = override_policy(load_policy("open"), {"environment": {"set": env}})
    words = apptainer.render(policy, seccomp="", apparmor=False)
    assert variables(words) == env
    assert [word for word in words if word.startswith("-")] == (["--no-eval"] if env else []) + ["--env"] * len(env)
    container = docker.render(policy, seccomp="", apparmor=False)["Config"]
    assert dict(each.split("=", 1) for each in container["Env"]) == env
    without = override_policy(load_policy("open"), {})
    for form in set(FORMS) - {"apptainer.txt", "docker.json", "bubblewrap.json"}:
        assert render_form(policy, form) == render_form(without, form)
    assert len(render_form(policy, "apptainer.txt").splitlines()) == len(words)
