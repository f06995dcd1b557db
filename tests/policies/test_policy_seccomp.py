"""Filters of system calls: every rendering answers every call as the policy's own list does."""

from __future__ import annotations

import json
import platform
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_exec.errors import Unsupported
from hermes_exec_policies.load import list_shipped_policies, load_policy, override_policy, parse_policy
from hermes_exec_policies.render import bpf, oci
from hermes_exec_policies.render.filter import EPERM, Compare, Filter, build_filter
from hermes_exec_policies.syscalls import all_syscalls, groups
from tests.policies import bpf_machine

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

FEW = settings(deadline=None, max_examples=50)
FILTERED = [name for name in list_shipped_policies() if name != "open"]
INTERESTING = (
    0, 1, 2, 3, 4, 5, 6, 7, 10, 16, 38, 40, 0o100, 0o755, 0o2755, 0o4755, 0o6000, 0x20000, 0x20008, 0x10000000,
    0x21, 0x22, 0x7E020000, 0x40000000, 0xFFFFFFFF, 1 << 32, (1 << 32) | 1, (1 << 32) | 2, (1 << 64) - 1, 0o20200000,
)  # fmt: skip
ARGUMENTS = st.tuples(*[st.sampled_from(INTERESTING) | st.integers(0, (1 << 64) - 1)] * 6)
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers here are those of x86_64")


@cache
def wanted(name: str) -> Filter:
    found = build_filter(load_policy(name))
    assert found is not None
    return found


@cache
def uncounted() -> Filter:
    """Of a skill's policy, where no control group counts memory."""
    found = build_filter(load_policy("skill-validate"), counted=False)
    assert found is not None
    return found


@cache
def skill() -> Policy:
    return load_policy("skill-run")


@cache
def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(oci.render(wanted(name), "x86_64"))
    return found


@cache
def number(name: str) -> int:
    """Of a call, by libseccomp or by our table of newer ones; -1 where x86_64 has none."""
    import pyseccomp

    found: int = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    return bpf.NEW_SYSCALLS.get(name, found) if found == -1 else found


@cache
def program(name: str) -> bytes:
    return bpf.compile_filter(wanted(name))


def told(answer: int) -> int:
    """The error number of what a filter answers."""
    if answer == bpf_machine.ALLOW:
        return 0
    assert answer & 0xFFFF0000 == bpf_machine.ERRNO
    return answer & 0xFFFF


@pytest.mark.parametrize("name", FILTERED)
@FEW
@given(call=st.sampled_from(sorted(all_syscalls())), arguments=ARGUMENTS)
def test_the_kernels_program_answers_as_the_policy_says(name: str, call: str, arguments: tuple[int, ...]) -> None:
    if number(call) >= 0:
        assert told(bpf_machine.run(program(name), number(call), arguments)) == wanted(name).answer(call, arguments)


@given(call=st.sampled_from(["mmap", "open", "socket"]), arguments=ARGUMENTS)
@FEW
def test_the_kernels_program_answers_as_the_filter_says_where_nothing_counts_memory(
    call: str, arguments: tuple[int, ...]
) -> None:
    found = told(bpf_machine.run(bpf.compile_filter(uncounted()), number(call), arguments))
    assert found == uncounted().answer(call, arguments)


@pytest.mark.parametrize(
    ("flags", "answer"),
    [(0x21, 12), (0x23, 12), (0x100000021, 12), (0x22, 0), (0x01, 0), (0x03, 0), (0x02, 0), (0x4022, 0)],
)
def test_memory_that_is_shared_and_of_no_file_looks_used_up_where_nothing_counts_it(flags: int, answer: int) -> None:
    assert uncounted().answer("mmap", (0, 4096, 3, flags, 0, 0)) == answer
    assert wanted("skill-validate").answer("mmap", (0, 4096, 3, flags, 0, 0)) == 0


@pytest.mark.parametrize("name", FILTERED)
def test_the_kernels_program_refuses_what_the_policy_does_not_name(name: str) -> None:
    named = {each for rule in wanted(name).rules for each in rule.names}
    for call in sorted(all_syscalls() - named):
        if number(call) >= 0:
            assert told(bpf_machine.run(program(name), number(call), (0,) * 6)) == EPERM, call


@pytest.mark.parametrize("name", FILTERED)
@FEW
@given(call=st.integers(500, 0x3FFFFFFF), arguments=ARGUMENTS)
def test_a_call_that_nobody_knows_yet_is_refused(name: str, call: int, arguments: tuple[int, ...]) -> None:
    assert told(bpf_machine.run(program(name), call, arguments)) == EPERM


@pytest.mark.parametrize("name", FILTERED)
@FEW
@given(call=st.integers(0, 500))
def test_a_call_in_a_32_bit_or_x32_form_ends_the_process(name: str, call: int) -> None:
    assert bpf_machine.run(program(name), call, (0,) * 6, arch=bpf_machine.I386) == bpf_machine.KILL_PROCESS
    assert bpf_machine.run(program(name), call | 0x40000000, (0,) * 6) == bpf_machine.KILL_PROCESS


def answered(read: dict[str, Any], call: str, arguments: tuple[int, ...]) -> int:
    """What an engine makes of the JSON."""
    for entry in read["syscalls"]:
        if call in entry["names"] and all(_holds(each, arguments) for each in entry.get("args", [])):
            return 0 if entry["action"] == "SCMP_ACT_ALLOW" else int(entry["errnoRet"])
    assert read["defaultAction"] == "SCMP_ACT_ERRNO"
    return int(read["defaultErrnoRet"])


def _holds(condition: dict[str, Any], arguments: tuple[int, ...]) -> bool:
    value = arguments[int(condition["index"])]
    if condition["op"] == "SCMP_CMP_EQ":
        return bool(value == condition["value"])
    assert condition["op"] == "SCMP_CMP_MASKED_EQ"
    return bool(value & condition["value"] == condition["valueTwo"])


@pytest.mark.parametrize("name", FILTERED)
@FEW
@given(call=st.sampled_from(sorted(all_syscalls())), arguments=ARGUMENTS)
def test_an_engine_answers_as_the_policy_says(name: str, call: str, arguments: tuple[int, ...]) -> None:
    assert answered(document(name), call, arguments) == wanted(name).answer(call, arguments)


@pytest.mark.parametrize("name", FILTERED)
def test_what_looks_absent_to_apptainer_has_nobody_who_could_trace_it(name: str) -> None:
    read = json.loads(oci.render_for_apptainer(wanted(name), "x86_64"))
    assert {entry["action"] for entry in read["syscalls"]} == {"SCMP_ACT_ALLOW", "SCMP_ACT_TRACE"}
    assert not [entry for entry in read["syscalls"] if "ptrace" in entry["names"]]
    assert not [entry for entry in read["syscalls"] if "errnoRet" in entry]


@pytest.mark.parametrize("machine", oci.ARCHITECTURES)
@pytest.mark.parametrize("name", FILTERED)
def test_only_the_native_architecture_is_named(name: str, machine: str) -> None:
    assert json.loads(oci.render(wanted(name), machine))["architectures"] == [oci.ARCHITECTURES[machine]]


def test_another_machine_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="system call filters are not supported on riscv64"):
        oci.render(wanted("skill-run"), "riscv64")


@pytest.mark.parametrize("name", ["skill-validate", "skill-run", "skill-script"])
@FEW
@given(family=st.integers(0, 45) | st.integers(0, (1 << 64) - 1), call=st.sampled_from(["socket", "socketpair"]))
def test_skills_make_unix_sockets_and_scripts_internet_sockets_too(name: str, family: int, call: str) -> None:
    allowed = {1, 2, 10} if name == "skill-script" else {1}
    assert (wanted(name).answer(call, (family, 1, 0, 0, 0, 0)) == 0) == (family in allowed)


@pytest.mark.parametrize("name", ["skill-validate", "skill-run", "workspace"])
def test_clone3_is_absent_and_clone_makes_no_namespaces(name: str) -> None:
    assert wanted(name).answer("clone3", (0,) * 6) == 38
    assert wanted(name).answer("clone", (17, 0, 0, 0, 0, 0)) == 0
    for bit in (17, 25, 26, 27, 28, 29, 30):  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
        assert wanted(name).answer("clone", (1 << bit, 0, 0, 0, 0, 0)) == EPERM


@FEW
@given(protection=st.integers(0, (1 << 64) - 1))
def test_skills_have_no_memory_that_is_written_and_run(protection: int) -> None:
    filter_ = wanted("skill-validate")
    assert (filter_.answer("mmap", (0, 0, protection, 0, 0, 0)) == EPERM) == (protection & 6 == 6)
    assert (filter_.answer("mprotect", (0, 0, protection, 0, 0, 0)) == EPERM) == bool(protection & 4)


@FEW
@given(mode=st.integers(0, 0o177777))
def test_skills_make_no_file_that_runs_as_another(mode: int) -> None:
    filter_ = wanted("skill-validate")
    refused = bool(mode & 0o6000)
    assert (filter_.answer("chmod", (0, mode, 0, 0, 0, 0)) == EPERM) == refused
    assert (filter_.answer("fchmodat", (0, 0, mode, 0, 0, 0)) == EPERM) == refused
    assert (filter_.answer("openat", (0, 0, 0o101, mode, 0, 0)) == EPERM) == refused
    assert filter_.answer("openat", (0, 0, 0, mode, 0, 0)) == 0  # without O_CREAT the mode is whatever was there


@FEW
@given(
    removed=st.sets(st.sampled_from(sorted(groups()))),
    added=st.sets(st.sampled_from(sorted(groups()))),
)
def test_what_is_removed_stays_removed_whatever_is_added(removed: set[str], added: set[str]) -> None:
    spelt = {key: [f"@{each}" for each in sorted(value)] for key, value in (("remove", removed), ("add", added))}
    policy = override_policy(skill(), {"syscalls": spelt})
    gone = {name for group in removed for name in groups()[group].names}
    found = build_filter(policy)
    assert found is not None
    assert not gone & {name for rule in found.rules for name in rule.names}


@cache
def on_arm(call: str) -> int:
    """The number of a call on aarch64; -1 where it has none, or where libseccomp does not know it."""
    import pyseccomp

    found: int = pyseccomp.resolve_syscall(pyseccomp.Arch.AARCH64, call)
    return found


@pytest.mark.parametrize("name", FILTERED)
@FEW
@given(call=st.sampled_from(sorted(all_syscalls())), arguments=ARGUMENTS)
def test_the_program_for_another_machine_answers_as_the_policy_says(
    name: str, call: str, arguments: tuple[int, ...]
) -> None:
    # The library that made what ships did not know the newest calls there, so they are refused.
    if on_arm(call) >= 0 and call not in bpf.NEW_SYSCALLS:
        shipped_ = bpf.read_shipped_program(wanted(name), "aarch64") or b""
        answer = bpf_machine.run(shipped_, on_arm(call), arguments, arch=bpf_machine.AARCH64)
        assert told(answer) == wanted(name).answer(call, arguments)


@pytest.mark.parametrize("name", FILTERED)
def test_the_program_for_another_machine_ends_what_is_called_in_any_other_form(name: str) -> None:
    shipped_ = bpf.read_shipped_program(wanted(name), "aarch64") or b""
    for arch in (bpf_machine.X86_64, bpf_machine.I386, 0x40000028):  # the last is ARM with 32 bits
        assert bpf_machine.run(shipped_, 0, (0,) * 6, arch=arch) == bpf_machine.KILL_PROCESS


def test_a_condition_looks_at_all_64_bits() -> None:
    assert not Compare(0, 1).holds(((1 << 32) | 1, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("name", FILTERED)
def test_a_shipped_filter_is_there_compiled(name: str) -> None:
    assert all(bpf.read_shipped_program(wanted(name), machine) for machine in oci.ARCHITECTURES)


def test_a_policy_of_ones_own_is_compiled_when_it_is_used() -> None:
    policy = parse_policy('extends = "skill-run"\n[syscalls]\nadd = ["bpf"]', "mine")
    found = build_filter(policy)
    assert found is not None
    assert bpf.read_shipped_program(found, "x86_64") is None
    assert told(bpf_machine.run(bpf.load_program(found), number("bpf"), (0,) * 6)) == 0


@FEW
@given(command=st.integers(0, (1 << 32) - 1), high=st.integers(0, (1 << 32) - 1))
def test_skills_are_told_of_no_changes_of_folders_and_use_every_other_command_of_files(command: int, high: int) -> None:
    answer = wanted("skill-validate").answer("fcntl", (3, high << 32 | command, 0, 0, 0, 0))
    assert (answer == 0) == (command < 1040 and command != 1026)
    assert wanted("workspace").answer("fcntl", (3, 1026, 0, 0, 0, 0)) == 0


@pytest.mark.parametrize("call", ["inotify_init", "inotify_init1", "inotify_add_watch", "io_setup"])
def test_skills_watch_no_files_and_take_nothing_that_the_machine_has_once(call: str) -> None:
    assert wanted("skill-run").answer(call, (0,) * 6) == EPERM


@pytest.mark.parametrize("command", [1026, (1 << 32) | 1026])
def test_a_folder_is_not_watched_in_the_kernels_program_either(command: int) -> None:
    assert told(bpf_machine.run(program("skill-validate"), number("fcntl"), (3, command, 0, 0, 0, 0))) == EPERM
    assert told(bpf_machine.run(program("skill-validate"), number("fcntl"), (3, command + 4, 0, 0, 0, 0))) == 0
