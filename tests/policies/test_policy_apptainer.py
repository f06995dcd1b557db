"""What a policy is rendered to for Apptainer holds there, for an ordinary user: the same attempts, the same judge."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.decoys import plant_decoys
from hermes_exec_policies.canaries.expected import CONTROL_ATTEMPTS, canaries_of
from hermes_exec_policies.canaries.judge import Proof, Verdict, judge
from hermes_exec_policies.explain import explain_policy
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render import apptainer, oci
from hermes_exec_policies.render.filter import build_filter
from tests.rigs import apptainer as rig

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

SKILL = "skill-validate"
OF_ITS_OWN = {"secrets-variables"}
"""Apptainer sets some variables itself, none of which is of the outside."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def tree() -> Generator[Path]:
    """An image that an ordinary user can read, and the filter beside it."""
    rig.program()
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield rig.tree(Path(folder))


def proven(tree: Path, less: Sequence[str] = ()) -> Proof:
    """The attempts of what Apptainer enforces by itself, without the options ``less``."""
    policy = load_policy(SKILL)
    wanted = build_filter(policy)
    assert wanted is not None
    file = tree.parent / "seccomp.json"
    file.write_text(oci.render_for_apptainer(wanted, this_machine().machine))
    host = replace(this_machine(), uid=1000, apparmor=False, landlock_abi=0)
    held = {verdict.rule for verdict in explain_policy(policy, "singularity", host) if verdict.held_by}
    enforced = held - {"files.masked", "files.run"}  # which Apptainer has no options for; the launcher does it
    canaries = [
        each
        for each in canaries_of(policy, "singularity")
        if each.rule in enforced and not each.name.startswith("limits-") and each.name not in OF_ITS_OWN
    ]
    words = [word for word in apptainer.render(policy, seccomp=str(file), apparmor=False) if word not in less]
    with plant_decoys() as outside:
        configuration: dict[str, object] = {
            "nonce": "n",
            "label": "",
            "attempts": [*CONTROL_ATTEMPTS, *(each.name for each in canaries)],
            "write": list(policy.files.write),
            "scratch": [],
            "hold": 30,
            "unmapped": True,
            "variables": [],
            "limits": {},
            "outside": outside,
        }
        argv = [rig.program(), "-s", "exec", "--userns", *words, str(tree)]
        return judge(_ran([*argv, *program.suite_argv("/usr/bin/python3", configuration)]), canaries, "n")


def _ran(argv: list[str]) -> bytes:
    who = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    env = {**os.environ, "HOME": "/tmp"}
    # Where we are may be closed to that user.
    done = subprocess.run([*who, *argv], check=False, capture_output=True, stdin=subprocess.DEVNULL, env=env, cwd="/")
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-1000:]
    return done.stdout


def test_what_apptainer_enforces_of_a_skills_policy_holds(tree: Path) -> None:
    proof = proven(tree)
    assert [each for each in proof.judged if each.verdict is not Verdict.HELD] == []
    assert proof.verdict is Verdict.HELD, proof.invalid
    assert {"mounts", "seccomp", "network namespace", "process namespace", "no_new_privs"} <= {*proof.layers}
