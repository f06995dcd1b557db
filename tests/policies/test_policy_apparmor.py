"""The rendered profile in a kernel that has AppArmor: as the only mechanism (root, no filter, no mounts), and with all.

That kernel has control groups of version 2 alone, so limits are held by them there. One machine is booted for all.
"""

from __future__ import annotations

import errno
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
import hermes_exec_backends
import hermes_exec_policies
from hermes_exec_backends.sandbox import Confinement, Limits
from hermes_exec_policies.canaries.expected import CONTROL_ATTEMPTS, canaries_of
from hermes_exec_policies.canaries.judge import Verdict, judge
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.explain import explain_policy
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render import apparmor
from tests.rigs import vm
from tests.rigs.machine import there

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_policies.canaries.expected import Canary
    from hermes_exec_policies.model import Policy

SKILL = "skill-validate"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DRIVER = """\
import json, os, subprocess, sys
sys.path.insert(0, "/share/lib")
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.decoys import plant_decoys
for folder in ("/app/skills", "/app/data"):
    os.makedirs(folder, exist_ok=True)
with open("/proc/sys/kernel/printk_ratelimit", "w") as file:
    file.write("0")  # or some of the denials are left out of the log
subprocess.run(["apparmor_parser", "-r", "-K", "/share/profile"], check=True)
with open("/share/job.json") as file:
    job = json.load(file)
with plant_decoys() as outside:
    words = list(program.suite_argv("/usr/bin/python3", dict(job, outside=outside)))
    for name, before in (("confined", ["aa-exec", "-p", job["profile"], "--"]), ("bare", [])):
        env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        done = subprocess.run(before + words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
        with open("/share/" + name, "wb") as file:
            file.write(done.stdout)
os.makedirs("/app/other")
outside = "open('/app/other/x', 'w')"
confined = ["aa-exec", "-p", job["profile"], "--"]
said = subprocess.run(confined + ["/usr/bin/python3", "-I", "-c", outside], stderr=subprocess.PIPE)
with open("/share/denied", "wb") as file:
    file.write(said.stderr)
os.makedirs("/app/folders/archive")
kept = "path = '/app/folders/archive/x'\\nopen(path, 'w').write('kept')\\nprint(open(path).read())"
with open("/share/folder", "wb") as file:
    file.write(subprocess.run(confined + ["/usr/bin/python3", "-I", "-c", kept], stdout=subprocess.PIPE).stdout)
label = ["aa-exec", "-p", job["profile"], "--", "/bin/cat", "/proc/self/attr/current"]
print(subprocess.check_output(label).decode().strip())
subprocess.run([sys.executable, "-I", "/share/sandboxes.py"], check=True)
print(subprocess.check_output(["dmesg"]).decode("utf-8", "replace"), file=sys.stderr)
"""
SANDBOXES = """\
import asyncio, dataclasses, json, pickle, sys
sys.path.insert(0, "/share/lib")
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.decoys import plant_decoys
with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as file:
    file.write("+memory +pids +cpu")
with open("/share/sandboxes", "rb") as file:
    sandboxes = pickle.load(file)
async def once(specification, argv, limits):
    async with await start(specification, argv, limits=limits) as run:
        run.go()
        ended = await run.wait()
        told = {"limit": ended.limit, "stdout": ended.stdout.decode(), "stderr": ended.stderr.decode()[-2000:]}
        return {**told, "enforcers": dict(run.limit_enforcers), "facts": dataclasses.asdict(run.facts)}
with plant_decoys() as outside:
    seen = {}
    for name, (specification, words, limits) in sandboxes.items():
        attempts = isinstance(words, dict)
        argv = program.suite_argv("/usr/bin/python3", dict(words, outside=outside)) if attempts else words
        seen[name] = asyncio.run(once(specification, argv, limits))
with open("/share/seen.json", "w") as file:
    json.dump(seen, file)
"""
(LABEL,) = (each for each in canaries_of(load_policy(SKILL)) if each.name == "posture-label")
"""The one attempt that tells that the profile is gone where every other mechanism is in force."""
BOUNDED = {
    "memory": "kept = [bytearray(1 << 20) for _ in range(400)]",
    "processes": "import os, signal\nwhile True:\n if os.fork() == 0: signal.pause()",
    "cpu": "while True: pass",
}
"""Programs that exceed a limit, by its name."""
BY_FILES = {
    "files-etc", "files-root", "files-skills", "files-app", "files-climb", "files-symlink", "files-usr", "files-change",
    "files-proc-sys", "files-sysrq", "files-rename", "files-fd-reopen", "files-proc-self", "files-run-written",
    "files-run-scratch", "files-map-written", "secrets-file", "secrets-shadow", "secrets-kernel-log",
    "secrets-kernel-memory", "secrets-keys", "processes-memory-first",
}  # fmt: skip
"""Attempts on files; each works without the profile, as root."""
BY_NETWORK = {
    "network-loopback", "network-raw", "network-packet", "network-netlink", "network-vsock", "network-alg",
    "network-listen",
}  # fmt: skip
BY_CAPABILITIES = {"kernel-real-time", "kernel-init-module", "kernel-acct", "kernel-sethostname", "kernel-fsopen"}
"""Refused with EPERM by the profile, and otherwise not: root may."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[vm.Done, Path]:
    """What the driver says in the machine, and the folder with its reports."""
    vm.machine()
    share = tmp_path_factory.mktemp("vm")
    package = Path(hermes_exec_policies.__file__).parent
    lib = share / "lib" / package.name
    lib.mkdir(parents=True)
    shutil.copy(package / "__init__.py", lib)
    shutil.copytree(package / "canaries", lib / "canaries", ignore=shutil.ignore_patterns("__pycache__"))
    for part in (hermes_exec, hermes_exec_backends):
        source = Path(str(part.__file__)).parent
        shutil.copytree(source, share / "lib" / source.name, ignore=shutil.ignore_patterns("__pycache__", "examples"))
    policy = load_policy(SKILL)
    job: dict[str, object] = {
        "nonce": "n",
        "label": apparmor.profile_name(policy),
        "attempts": [*CONTROL_ATTEMPTS, *sorted(BY_FILES | BY_NETWORK | BY_CAPABILITIES)],
        "write": list(policy.files.write),
        "scratch": list(policy.files.scratch),
        "hold": 30,
        "unmapped": True,
        "variables": ["PATH", "LANG"],
        "limits": {},
        "profile": apparmor.profile_name(policy),
    }
    (share / "job.json").write_text(json.dumps(job))
    (share / "profile").write_text(apparmor.render(policy))
    (share / "driver.py").write_text(DRIVER)
    (share / "sandboxes.py").write_text(SANDBOXES)
    (share / "sandboxes").write_bytes(pickle.dumps(sandboxes(policy)))
    done = vm.run(["/usr/bin/python3", "-I", "/share/driver.py"], share, seconds=500)
    assert done.code == 0, done.err[-2000:]
    return done, share


def held_there(policy: Policy) -> list[Canary]:
    """What is tried with all mechanisms at once; limits on the whole are tried by programs of their own."""
    enforced = {verdict.rule for verdict in explain_policy(policy, "bubblewrap", there()) if verdict.held_by}
    return [
        each
        for each in canaries_of(policy)
        if each.rule in enforced and each.abi <= 2 and not each.name.startswith("limits-")
    ]


def sandboxes(policy: Policy) -> dict[str, tuple[Confinement, Any, Limits]]:
    """The specification with every mechanism, or without the profile, and what is run in it under which limits."""
    specification, limits = build_confinement(policy, there())
    job = {
        "nonce": "n",
        "label": apparmor.profile_name(policy),
        "attempts": [*CONTROL_ATTEMPTS, *(each.name for each in held_there(policy))],
        "write": list(policy.files.write),
        "scratch": list(policy.files.scratch),
        "hold": 30,
        "unmapped": True,
        "variables": [name for name, _ in specification.env],
        "limits": {name: value for name, value in policy.limits.model_dump().items() if value is not None},
    }
    bounds = {
        "memory": Limits(wall_s=200, memory=64 << 20),
        "processes": Limits(wall_s=200, processes=12),
        "cpu": Limits(wall_s=200, cpu_s=1),
    }
    programs = {
        name: (specification, ["/usr/bin/python3", "-ISc", code], bounds[name]) for name, code in BOUNDED.items()
    }
    limits = replace(limits, wall_s=300)
    without = (replace(specification, apparmor=""), {**job, "attempts": [*CONTROL_ATTEMPTS, LABEL.name]}, limits)
    return {"all": (specification, job, limits), "without": without, **programs}


def outcomes(shown: tuple[vm.Done, Path], name: str) -> Mapping[str, Any]:
    lines = [json.loads(line) for line in (shown[1] / name).read_text().splitlines()]
    assert lines[-1].get("ended") == "n"
    return {line["name"]: line for line in lines if "name" in line}


def test_the_profile_is_enforced_and_what_must_work_works(shown: tuple[vm.Done, Path]) -> None:
    assert shown[0].out.strip() == "hermes-exec-skill-validate (enforce)"
    found = outcomes(shown, "confined")
    assert {name: found[name]["outcome"] for name in CONTROL_ATTEMPTS} == dict.fromkeys(CONTROL_ATTEMPTS, "worked")


@pytest.mark.parametrize("name", sorted(BY_FILES | BY_NETWORK))
def test_the_profile_alone_refuses_with_permission_denied(shown: tuple[vm.Done, Path], name: str) -> None:
    assert outcomes(shown, "confined")[name] == {"name": name, "outcome": "errno", "errno": errno.EACCES}
    bare = outcomes(shown, "bare")[name]
    assert bare.get("errno") != errno.EACCES  # it is the profile that refused


@pytest.mark.parametrize("name", sorted(BY_CAPABILITIES))
def test_the_profile_alone_gives_no_capability(shown: tuple[vm.Done, Path], name: str) -> None:
    assert outcomes(shown, "confined")[name] == {"name": name, "outcome": "errno", "errno": errno.EPERM}
    assert outcomes(shown, "bare")[name].get("errno") != errno.EPERM


def test_a_denial_is_logged_with_the_path_that_was_refused(shown: tuple[vm.Done, Path]) -> None:
    denied = [line for line in shown[0].err.splitlines() if 'apparmor="DENIED"' in line]
    assert any('name="/etc/hermes-canary"' in line and "hermes-exec-skill-validate" in line for line in denied)
    assert any('name="/proc/sys/kernel/core_pattern"' in line for line in denied)
    assert any('capname="sys_module"' in line for line in denied)


def test_a_write_outside_of_its_folders_is_denied_with_error_13(shown: tuple[vm.Done, Path]) -> None:
    said = (shown[1] / "denied").read_text()
    assert said.splitlines()[-1] == "PermissionError: [Errno 13] Permission denied: '/app/other/x'"


def test_a_granted_folder_is_left_to_its_mount_and_landlock(shown: tuple[vm.Done, Path]) -> None:
    assert (shown[1] / "folder").read_text() == "kept\n"


def seen(shown: tuple[vm.Done, Path], name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shown[1] / "seen.json").read_text())[name]
    return found


def test_with_all_mechanisms_at_once_every_attempt_is_held(shown: tuple[vm.Done, Path]) -> None:
    told = seen(shown, "all")
    proof = judge(told["stdout"].encode(), held_there(load_policy(SKILL)), "n")
    assert [each for each in proof.judged if each.verdict is not Verdict.HELD] == []
    assert proof.verdict is Verdict.HELD, (proof.invalid, told["stderr"])


def test_without_the_profile_the_attempt_at_the_label_notices(shown: tuple[vm.Done, Path]) -> None:
    told = seen(shown, "without")
    proof = judge(told["stdout"].encode(), [LABEL], "n")
    broken = [(each.name, each.rule, each.ended) for each in proof.judged if each.verdict is Verdict.BROKEN]
    assert broken == [("posture-label", "lsm", "worked: unconfined")], proof.invalid


def test_with_all_mechanisms_the_program_has_filter_and_label_before_it_begins(shown: tuple[vm.Done, Path]) -> None:
    facts = seen(shown, "all")["facts"]
    assert (facts["seccomp"], facts["no_new_privs"], set(facts["caps"].values())) == (2, True, {0})
    assert facts["next_label"].startswith("hermes-exec-skill-validate")


@pytest.mark.parametrize("limit", BOUNDED)
def test_limits_are_held_by_control_groups_of_version_2(shown: tuple[vm.Done, Path], limit: str) -> None:
    told = seen(shown, limit)
    assert told["enforcers"][limit] == "cgroup v2"
    assert told["limit"] == limit, told["stderr"]
