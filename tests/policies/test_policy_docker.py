"""What a policy is rendered to for Docker holds in a container: the same attempts, judged the same way."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.decoys import plant_decoys
from hermes_exec_policies.canaries.expected import CONTROL_ATTEMPTS, canaries_of
from hermes_exec_policies.canaries.judge import Proof, Verdict, judge
from hermes_exec_policies.explain import explain_policy
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.render import docker, oci
from hermes_exec_policies.render.filter import build_filter
from tests.rigs.docker_engine import DEBIAN, Engine, engine

SKILL = "skill-validate"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def dock() -> Engine:
    return engine()


@functools.cache
def options(name: str) -> dict[str, Any]:
    """What a policy is rendered to, without the profile that tests cannot load."""
    wanted = build_filter(load_policy(name))
    text = oci.render(wanted, this_machine().machine) if wanted else ""
    return docker.render(load_policy(name), seccomp=text, apparmor=False)


def proven(dock: Engine, name: str, weaker: dict[str, Any]) -> Proof:
    """The attempts of what Docker enforces by itself, in a container with these options changed."""
    policy = load_policy(name)
    host = replace(
        this_machine(),
        versions={**this_machine().versions, "docker engine": "the tests'"},
        apparmor=False,
        landlock_abi=0,
    )
    enforced = {verdict.rule for verdict in explain_policy(policy, "docker", host) if verdict.held_by}
    watched_outside = {"limits-time", "limits-output", "limits-memory"}
    canaries = [
        each for each in canaries_of(policy, "docker") if each.rule in enforced and each.name not in watched_outside
    ]
    with plant_decoys() as outside:
        configuration: dict[str, object] = {
            "nonce": "n",
            "label": "",
            "attempts": [*CONTROL_ATTEMPTS, *(each.name for each in canaries)],
            "write": list(policy.files.write),
            "scratch": list(policy.files.scratch),
            "hold": 30,
            "unmapped": True,
            "variables": [*policy.environment.set, "HOSTNAME"],  # which the engine adds
            "limits": {name: value for name, value in policy.limits.model_dump().items() if value is not None},
            "outside": outside,
        }
        return judge(_ran(dock, name, configuration, weaker), canaries, "n")


def _ran(dock: Engine, name: str, configuration: dict[str, object], weaker: dict[str, Any]) -> bytes:
    made = options(name)
    container: str = dock.client.create_container_from_config(
        {
            **made["Config"],
            "Image": dock.image(DEBIAN),
            "Cmd": list(program.suite_argv("/usr/bin/python3", configuration)),
            "AttachStdout": True,
            "AttachStderr": True,
            "HostConfig": {**made["HostConfig"], **weaker},
        }
    )["Id"]
    try:
        stream = dock.client.attach(container, stream=True, demux=True)
        dock.client.start(container)
        return b"".join(out for out, _ in stream if out)
    finally:
        dock.client.remove_container(container, force=True)


def test_what_docker_enforces_of_a_skills_policy_holds(dock: Engine) -> None:
    proof = proven(dock, SKILL, {})
    assert [each for each in proof.judged if each.verdict is not Verdict.HELD] == []
    assert proof.verdict is Verdict.HELD, proof.invalid
    assert {"mounts", "noexec mounts", "seccomp", "network namespace", "no_new_privs"} <= {*proof.layers}
