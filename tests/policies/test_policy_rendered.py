"""Each form that a policy is rendered to: what it says, and that the committed files are what it is rendered to."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hermes_exec_policies
from hermes_exec.errors import UsageError
from hermes_exec_policies.load import list_shipped_policies, load_policy, override_policy
from hermes_exec_policies.render import apparmor, apptainer, bpf, clouds, docker, landlock, oci, rlimits
from hermes_exec_policies.render.bubblewrap import layout
from hermes_exec_policies.render.filter import build_filter
from hermes_exec_policies.render.forms import FORMS, build_shipped_filters, render_all, render_form

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy
    from tests.conftest import Require

FEW = settings(deadline=None, max_examples=50)
FOLDER = Path(hermes_exec_policies.__file__).parent / "rendered"
RENEW = "renew them: ./dev generate"
SKILL = "skill-validate"
PATHS = st.lists(
    st.from_regex(r"/(?:[a-z0-9_-][a-z0-9._-]{0,5}/){0,3}[a-z][a-z0-9_-]{0,6}", fullmatch=True), unique=True, max_size=4
)


def mine(**files: object) -> Policy:
    """A policy with these values of ``files``."""
    return override_policy(_skill(), {"files": files})


@cache
def _skill() -> Policy:
    return load_policy(SKILL)


@pytest.mark.parametrize("name", list_shipped_policies())
def test_the_committed_files_are_what_the_policy_is_rendered_to(name: str) -> None:
    committed = {file.name: file.read_text(encoding="utf-8") for file in (FOLDER / name).iterdir()}
    assert committed == render_all(load_policy(name)), RENEW


def test_nothing_else_is_committed() -> None:
    assert {entry.name for entry in FOLDER.iterdir()} == {*list_shipped_policies(), "bpf"}, RENEW
    keys = {key for name in list_shipped_policies() for key in build_shipped_filters(load_policy(name))}
    files = {f"{key}.{machine}" for key in keys for machine in oci.ARCHITECTURES}
    assert {file.name for file in (FOLDER / "bpf").iterdir()} == files, RENEW


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
@pytest.mark.parametrize("name", [name for name in list_shipped_policies() if name != "open"])
@pytest.mark.parametrize("machine", oci.ARCHITECTURES)
def test_the_committed_program_is_what_libseccomp_makes(
    machine: str, name: str, counted: bool, require: Require
) -> None:
    require("x86_64", "the programs are made there", usable=platform.machine() == "x86_64")
    wanted = build_filter(load_policy(name), counted=counted)
    assert wanted is not None
    version = _libseccomp()
    if version != "2.5.4":  # nothing that provisioning could mend, so no skip that fails in CI
        pytest.skip(f"libseccomp {version} orders instructions otherwise than the 2.5.4 that made the programs")
    assert bpf.read_shipped_program(wanted, machine) == bpf.compile_filter(wanted, machine), RENEW


def _libseccomp() -> str:
    from hermes_exec_backends.sandbox.host import this_machine

    return this_machine().versions.get("libseccomp", "")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", list_shipped_policies())
def test_rendering_twice_gives_the_same(name: str, form: str) -> None:
    assert render_form(load_policy(name), form) == render_form(load_policy(name), form)


def test_a_form_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="the nearest known one is 'apparmor'"):
        render_form(load_policy(SKILL), "aparmor")


# AppArmor


def compiles(text: str, parser: str) -> None:
    done = subprocess.run([parser, "-Q", "-K"], input=text, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", list_shipped_policies())
def test_the_profile_compiles(name: str, require: Require) -> None:
    compiles(apparmor.render(load_policy(name)), _parser(require))


@FEW
@given(write=PATHS, read=PATHS)
def test_any_paths_make_a_profile_whose_lines_are_well_formed(write: list[str], read: list[str]) -> None:
    lines = apparmor.render(mine(write=write, read=read, run=[])).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("profile "))
    assert lines[-1] == "}"
    assert all(re.fullmatch(r"  [^\s].*,|", line) for line in lines[start + 1 : -1])
    assert {f"  {path}{{,/,/**}} rwkl," for path in write} <= {*lines}


def test_a_profile_of_ones_own_paths_compiles(require: Require) -> None:
    compiles(apparmor.render(mine(write=["/srv/a.b+c@d~e", "/x-1"], read=["/opt"])), _parser(require))


def _parser(require: Require) -> str:
    program = Path("/usr/sbin/apparmor_parser")
    require("apparmor_parser", "it compiles profiles", usable=program.exists())
    return str(program)


@pytest.mark.parametrize("line", ["mount", "umount", "pivot_root", "capability", "network inet", "network raw"])
def test_what_a_skill_must_never_do_is_denied_so_that_it_is_logged(line: str) -> None:
    assert f"  audit deny {line},\n" in apparmor.render(load_policy(SKILL))


def test_what_a_skill_writes_is_neither_run_nor_mapped_to_be_run() -> None:
    assert "  /app/data{,/,/**} rwkl,\n" in apparmor.render(load_policy(SKILL))


def test_a_shell_that_may_run_what_it_wrote_can() -> None:
    assert "  /workspace{,/,/**} rwklmix,\n" in apparmor.render(load_policy("workspace"))


# Landlock


@FEW
@given(write=PATHS, run=PATHS)
def test_nothing_that_is_written_is_run_for_landlock(write: list[str], run: list[str]) -> None:
    apart = [path for path in write if not any(f"{path}/".startswith(f"{each}/") for each in run)]
    rules = landlock.ruleset(mine(write=apart, run=run, read=[], scratch=[], devices=[]))
    assert rules is not None
    rights = dict(rules.paths)
    for path in apart:
        assert rights[path] & landlock.WRITE_FILE
        assert not rights[path] & (landlock.EXECUTE | landlock.MAKE_CHAR | landlock.MAKE_BLOCK)
    for path in run:
        if path not in apart:
            assert rights[path] == landlock.RUNNING


@pytest.mark.parametrize("abi", range(1, 8))
def test_an_older_kernel_is_asked_for_nothing_that_it_does_not_know(abi: int) -> None:
    known = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 4: 1 << 15, 5: 1 << 16, 6: 1 << 16, 7: 1 << 16}[abi]
    rules = landlock.ruleset(load_policy(SKILL))
    assert rules is not None
    there = rules.at(abi)
    assert there.handled_files == known - 1
    assert all(access < known for _, access in there.paths)
    assert bool(there.handled_network) == (abi >= 4)
    assert bool(there.scoped) == (abi >= 6)


def test_open_has_no_landlock_rules() -> None:
    assert landlock.ruleset(load_policy("open")) is None


def test_on_a_cluster_everything_is_read_and_only_ones_work_is_written() -> None:
    rules = landlock.ruleset(load_policy("hpc"))
    assert rules is not None
    rights = dict(rules.paths)
    assert rights["/"] == landlock.RUNNING
    assert rights["/workspace"] & landlock.WRITE_FILE
    assert rules.handled_network == 0


# Limits


def test_limits_of_each_process() -> None:
    found = {name: (soft, hard) for name, soft, hard in rlimits.rlimits(load_policy(SKILL))}
    assert found["nofile"] == (256, 256)
    assert found["core"] == (1, 1)  # see rlimits._NO_CORE
    assert found["cpu"] == (60, 65)
    assert "as" not in found
    assert "nproc" not in found


def test_where_nothing_else_bounds_them_processes_and_memory_are_limits_of_each_process_too() -> None:
    found = {name: soft for name, soft, _ in rlimits.rlimits(load_policy(SKILL), memory=True, processes=True)}
    assert found["as"] == 512 << 20
    assert found["nproc"] == 64


def test_limits_of_all_together() -> None:
    assert dict(rlimits.cgroup(load_policy(SKILL), 2)) == {
        "memory.max": "536870912",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "64",
        "cpu.max": "100000 100000",
    }
    assert dict(rlimits.cgroup(load_policy(SKILL), 1))["memory.memsw.limit_in_bytes"] == "536870912"


def test_no_limit_is_set_where_there_is_none() -> None:
    assert rlimits.rlimits(load_policy("open")) == ()
    assert rlimits.cgroup(load_policy("open"), 2) == ()


# Docker, Apptainer, bubblewrap, clouds


def test_a_container_of_a_skill_has_everything_taken_away() -> None:
    options = docker.render(load_policy(SKILL), seccomp="{}", apparmor=True, uid=60007)
    host = options["HostConfig"]
    assert options["Config"]["User"] == "60007:60007"
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == []
    assert host["IpcMode"] == "private"
    assert host["MemorySwap"] == host["Memory"] == 512 << 20
    assert host["SecurityOpt"] == ["no-new-privileges:true", "seccomp={}", "apparmor=hermes-exec-skill-validate"]
    assert host["Tmpfs"] == {
        "/app/data": "rw,nosuid,nodev,noexec,size=67108864,nr_inodes=4096,mode=0700,uid=60007,gid=60007"
    }


def test_a_container_names_no_profile_where_none_is_loaded() -> None:
    assert not any(
        "apparmor" in each
        for each in docker.render(load_policy(SKILL), seccomp="{}", apparmor=False)["HostConfig"]["SecurityOpt"]
    )


def test_apptainer_shares_nothing_with_a_skill() -> None:
    words = apptainer.render(load_policy(SKILL), seccomp="/x.json", apparmor=False)
    assert {"--containall", "--no-home", "--cleanenv", "--no-privs"} <= {*words}
    assert words[words.index("--network") + 1] == "none"
    assert words[words.index("--security") + 1] == "seccomp:/x.json"
    assert words[words.index("--drop-caps") + 1] == "all"


def test_the_local_sandbox_of_a_skill_has_every_namespace_and_no_folder_to_run_from() -> None:
    made = layout(load_policy(SKILL))
    assert made.namespaces == ("user", "pid", "net", "ipc", "uts", "cgroup")
    assert [(folder.target, folder.size, folder.inodes, folder.executable) for folder in made.folders] == [
        ("/app/data", 64 << 20, 4096, False),
        ("/dev/shm", 16 << 20, 4096, False),
    ]
    assert not made.whole
    assert "/proc/keys" in made.masked


def test_clouds_are_asked_to_block_the_network_of_a_skill() -> None:
    assert clouds.modal(load_policy(SKILL)) == {
        "block_network": True,
        "memory": [512, 512],
        "cpu": [1.0, 1.0],
        "timeout": 120,
    }
    assert clouds.daytona(load_policy(SKILL))["network_block_all"] is True


@pytest.mark.parametrize("name", list_shipped_policies())
def test_every_form_is_whole(name: str) -> None:
    for form, text in render_all(load_policy(name)).items():
        if form.endswith(".json"):
            json.loads(text)
        assert text.endswith("\n")
