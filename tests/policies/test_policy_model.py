"""What a policy may say, and what is told of one that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes_exec.errors import ConfigError
from hermes_exec_policies.load import (
    diff_policies,
    list_policies,
    list_shipped_policies,
    load_policy,
    override_policy,
    parse_policy,
    user_folder,
)
from hermes_exec_policies.rule_names import RULES
from hermes_exec_policies.syscalls import all_syscalls, default_syscalls, groups

CHILD = 'extends = "skill-run"\n'


def test_these_policies_ship() -> None:
    assert set(list_shipped_policies()) == {
        "skill-validate", "skill-run", "skill-script", "skill-hosts", "workspace", "shared-workspace", "hpc", "open",
    }  # fmt: skip


@pytest.mark.parametrize("name", list_shipped_policies())
def test_a_shipped_policy_is_complete(name: str) -> None:
    assert load_policy(name).name == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fils = 1", "unknown key 'fils'; the nearest known one is 'files'"),
        ('[files]\nwrit = ["/a"]', "'files': unknown key 'writ'; the nearest known one is 'write'"),
        ('[files]\nwrite = ["app/data"]', "should be an absolute path, not 'app/data'; the nearest one is '/app/data'"),
        ('[files]\nwrite = ["/app/../etc"]', "holds '.' or '..': '/app/../etc'; the nearest plain one is '/app/etc'"),
        ('[files]\nwrite = ["/app/./data"]', "holds '.' or '..'"),
        ('[files]\nwrite = ["/app//data"]', "a path has letters, digits and ._+~@- between single slashes"),
        ('[files]\nwrite = ["/app/data/"]', "a path has letters, digits and ._+~@- between single slashes"),
        ('[files]\nwrite = ["/app/{a,b}"]', "a path has letters, digits and ._+~@- between single slashes"),
        ('[files]\nwrite = ["/app/*"]', "a path has letters, digits and ._+~@- between single slashes"),
        ('[files]\nwrite = ["/a", "/a"]', "contains '/a' twice"),
        ('[syscalls]\nremove = ["ptrase"]', "no system call is called 'ptrase'; the nearest known one is 'ptrace'"),
        ('[syscalls]\nadd = ["@mount"]', "the nearest known one is '@mounts'"),
        ('best_effort = ["limits.memroy"]', "names no rule: 'limits.memroy'; the nearest known one is 'limits.memory'"),
        ('[network]\nsockets = ["netlnk"]', "the nearest known one is 'netlink'"),
        ("[network]\nsockets = []", "network.sockets is empty, which allows any family"),
        ('[network]\nhosts = ["pypi.org"]', 'network.access should be "hosts"'),
        ('[privileges]\ncapabilities = ["SYS_ADMN"]', "the nearest known one is 'SYS_ADMIN'"),
        ('[limits]\nmemory = "much"', "'limits.memory' should be a size"),
        ("[limits]\nprocesses = -1", "'limits.processes'"),
        *(
            (f"[limits]\n{name} = 0", f"'limits.{name}': kernels and engines take 0 for no limit")
            for name in ("memory", "processes", "disk", "inodes", "shared_memory")
        ),
        ('[files]\nwrite = ["/usr/share"]', "/usr/share is writable and in /usr, from which programs can be executed"),
        ('name = "other"', "'name' cannot be set; it is the name of the file"),
        ("[files", "policy.toml"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_what_was_meant(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as error:
        parse_policy(CHILD + text if not text.startswith("name") else f"{text}\n{CHILD}", "policy.toml")
    assert len(str(error.value).splitlines()) == 1


def test_a_policy_that_forgets_something_is_refused() -> None:
    with pytest.raises(ConfigError, match="'limits' is missing"):
        parse_policy('summary = "x"', "mine")


def test_a_policy_that_extends_has_what_it_does_not_say_itself() -> None:
    mine = parse_policy(CHILD + '[limits]\nmemory = "2 GiB"', "mine")
    assert {key: new for key, _, new in diff_policies(load_policy("skill-run"), mine)} == {"limits.memory": 2 << 30}


def test_a_list_takes_the_place_of_the_one_below() -> None:
    assert parse_policy(CHILD + '[environment]\nkeep = ["LANG"]', "mine").environment.keep == ("LANG",)


def test_policies_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b"\n')
    (tmp_path / "b.toml").write_text('extends = "a"\n')
    with pytest.raises(ConfigError, match="extend each other"):
        load_policy(str(tmp_path / "a.toml"))


def test_ones_own_policy_has_the_name_of_its_file() -> None:
    user_folder().mkdir(parents=True, exist_ok=True)
    file = user_folder() / "mine.toml"
    file.write_text(CHILD)
    try:
        assert load_policy("mine").name == "mine"
        assert "mine" in list_policies()
    finally:
        file.unlink()


def test_a_file_of_ones_own_never_takes_the_place_of_a_shipped_policy() -> None:
    user_folder().mkdir(parents=True, exist_ok=True)
    file = user_folder() / "skill-validate.toml"
    file.write_text('extends = "open"\n')
    try:
        assert load_policy("skill-validate").files.root == "read-only"
    finally:
        file.unlink()


@pytest.mark.parametrize("name", ["..", ".", "", "skill", "../open"])
def test_a_policy_that_is_not_there_is_named_with_the_nearest(name: str) -> None:
    with pytest.raises(ConfigError):
        load_policy(name)


def test_overrides_take_the_place_of_values() -> None:
    assert load_policy("workspace", {"limits": {"time": 60.0}}).limits.time == 60.0
    assert override_policy(load_policy("workspace"), {"limits": {"time": 60.0}}) == load_policy(
        "workspace", {"limits": {"time": 60.0}}
    )


def test_overrides_are_checked_like_the_file() -> None:
    with pytest.raises(
        ConfigError, match="with overrides: 'limits': unknown key 'tme'; the nearest known one is 'time'"
    ):
        load_policy("workspace", {"limits": {"tme": 60.0}})


def test_the_digest_changes_with_every_value() -> None:
    policy = load_policy("skill-run")
    assert policy.digest == load_policy("skill-run").digest
    assert policy.digest != load_policy("skill-run", {"limits": {"open_files": 257}}).digest
    assert policy.digest != load_policy("skill-run", {"best_effort": []}).digest


def test_no_system_call_is_in_two_groups() -> None:
    assert sum(len(group.names) for group in groups().values()) == len(all_syscalls())


def test_every_policy_starts_from_what_engines_allow() -> None:
    assert {"read", "execve", "mmap"} <= default_syscalls()
    assert not default_syscalls() & {
        "mount",
        "unshare",
        "bpf",
        "init_module",
        "io_uring_setup",
        "kexec_load",
        "userfaultfd",
    }


@pytest.mark.parametrize("name", ["skill-validate", "skill-run"])
def test_skills_cannot_make_the_calls_that_reach_deep_into_the_kernel(name: str) -> None:
    refused = set[str]().union(
        *(
            groups()[each].names
            for each in (
                "tracing", "memory-files", "nodes", "handles", "keyrings", "sysv-ipc", "message-queues", "io-uring",
                "personality", "segments", "filtering", "namespaces", "mounts", "modules", "boot", "clock", "probing",
            )
        )
    )  # fmt: skip
    assert not load_policy(name).calls & refused


def test_a_launcher_can_start_a_program_under_every_filter() -> None:
    needed = {"read", "write", "close", "execve", "exit_group"}
    assert all(needed <= load_policy(name).calls for name in list_shipped_policies())


def test_every_rule_of_a_limit_is_a_field_of_limits() -> None:
    named = {rule.removeprefix("limits.") for rule in RULES if rule.startswith("limits.")}
    assert named == set(type(load_policy("open").limits).model_fields)


@pytest.mark.parametrize("value", ["a\nb", "a\x00b", "\x1b[2J"], ids=["lines", "nul", "escape"])
def test_a_variable_holds_one_line_of_text(value: str) -> None:
    with pytest.raises(ConfigError, match=r"'environment\.set\.A': contains .*; a value is one line of text"):
        override_policy(load_policy("open"), {"environment": {"set": {"A": value}}})


@pytest.mark.parametrize("name", ["a b", "x { capability, }", "", "-x", "a\nb"])
def test_a_policy_is_called_as_its_profile_can_be(name: str) -> None:
    with pytest.raises(ConfigError, match=r"'name' names .*; the name of a policy has letters, digits and \._-"):
        parse_policy('extends = "open"', name)
