"""The rendered profile in a kernel that has AppArmor, where it is the only mechanism: root, no filter, no mounts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec_policies
from hermes_exec_policies.canaries.expected import CONTROLS, EACCES, canaries_of
from hermes_exec_policies.load import load
from hermes_exec_policies.render import apparmor
from tests.rigs import vm

if TYPE_CHECKING:
    from collections.abc import Mapping

SKILL = "skill-validate"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DRIVER = """\
import json, os, subprocess, sys
sys.path.insert(0, "/share/lib")
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.planted import planted
for folder in ("/app/skills", "/app/data"):
    os.makedirs(folder, exist_ok=True)
with open("/proc/sys/kernel/printk_ratelimit", "w") as file:
    file.write("0")  # or some of the denials are left out of the log
subprocess.run(["apparmor_parser", "-r", "-K", "/share/profile"], check=True)
with open("/share/job.json") as file:
    job = json.load(file)
with planted() as outside:
    words = list(program.argv("/usr/bin/python3", dict(job, outside=outside)))
    for name, before in (("confined", ["aa-exec", "-p", job["profile"], "--"]), ("bare", [])):
        env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        done = subprocess.run(before + words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
        with open("/share/" + name, "wb") as file:
            file.write(done.stdout)
label = ["aa-exec", "-p", job["profile"], "--", "/bin/cat", "/proc/self/attr/current"]
print(subprocess.check_output(label).decode().strip())
print(subprocess.check_output(["dmesg"]).decode("utf-8", "replace"), file=sys.stderr)
"""
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
    policy = load(SKILL)
    attempts = [each.name for each in canaries_of(policy) if not each.name.startswith("limits-")]
    job: dict[str, object] = {
        "nonce": "n",
        "attempts": [*CONTROLS, *attempts],
        "write": list(policy.files.write),
        "scratch": list(policy.files.scratch),
        "variables": ["PATH", "LANG"],
        "limits": {},
        "profile": apparmor.profile_name(policy),
    }
    (share / "job.json").write_text(json.dumps(job))
    (share / "profile").write_text(apparmor.render(policy))
    (share / "driver.py").write_text(DRIVER)
    done = vm.run(["/usr/bin/python3", "-I", "/share/driver.py"], share, seconds=500)
    assert done.code == 0, done.err[-2000:]
    return done, share


def outcomes(shown: tuple[vm.Done, Path], name: str) -> Mapping[str, Any]:
    lines = [json.loads(line) for line in (shown[1] / name).read_text().splitlines()]
    assert lines[-1].get("ended") == "n"
    return {line["name"]: line for line in lines if "name" in line}


def test_the_profile_is_enforced_and_what_must_work_works(shown: tuple[vm.Done, Path]) -> None:
    assert shown[0].out.strip() == "hermes-exec-skill-validate (enforce)"
    found = outcomes(shown, "confined")
    assert {name: found[name]["outcome"] for name in CONTROLS} == dict.fromkeys(CONTROLS, "worked")


@pytest.mark.parametrize("name", sorted(BY_FILES | BY_NETWORK))
def test_the_profile_alone_refuses_with_permission_denied(shown: tuple[vm.Done, Path], name: str) -> None:
    assert outcomes(shown, "confined")[name] == {"name": name, "outcome": "errno", "errno": EACCES}
    bare = outcomes(shown, "bare")[name]
    assert bare.get("errno") != EACCES  # it is the profile that refused


@pytest.mark.parametrize("name", sorted(BY_CAPABILITIES))
def test_the_profile_alone_gives_no_capability(shown: tuple[vm.Done, Path], name: str) -> None:
    assert outcomes(shown, "confined")[name] == {"name": name, "outcome": "errno", "errno": 1}
    assert outcomes(shown, "bare")[name].get("errno") != 1


def test_a_denial_is_logged_with_the_path_that_was_refused(shown: tuple[vm.Done, Path]) -> None:
    denied = [line for line in shown[0].err.splitlines() if 'apparmor="DENIED"' in line]
    assert any('name="/etc/hermes-canary"' in line and "hermes-exec-skill-validate" in line for line in denied)
    assert any('name="/proc/sys/kernel/core_pattern"' in line for line in denied)
    assert any('capname="sys_module"' in line for line in denied)
