"""Policies proven from outside in containers of Docker and Apptainer, and a layer lost in each of them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceUnavailable, Unsupported
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.canaries import prove as proving
from hermes_exec_policies.canaries.judge import Proof, Verdict
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.load import load_policy, override_policy
from hermes_exec_policies.start_program import LOCAL, SandboxTarget, fingerprint_enforcers, parse_sandbox_target
from tests.conftest import require_part
from tests.rigs import apptainer, docker_engine
from tests.rigs.layers import ALWAYS, LAYERS, QUICK

if TYPE_CHECKING:
    from collections.abc import Generator

SKILL = "skill-validate"
ALL = {
    "mounts", "noexec mounts", "security module", "seccomp", "network namespace", "process namespace",
    "IPC namespace", "user", "capabilities", "no_new_privs", "environment", "limits of a process", "folders in memory",
}  # fmt: skip


@pytest.fixture(scope="module")
def singularity_place() -> Generator[SandboxTarget]:
    apptainer.program()
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield SandboxTarget("singularity", str(apptainer.tree(Path(folder))))


@pytest.fixture(scope="module")
def docker_place() -> SandboxTarget:
    require_part("root", "it looks at the processes of another user", usable=os.geteuid() == 0)
    engine = docker_engine.engine()
    return SandboxTarget("docker", engine.image(docker_engine.DEBIAN), engine.address)


@pytest.fixture(params=["docker", "singularity"])
def place(request: pytest.FixtureRequest) -> SandboxTarget:
    require_part("Landlock", "the policies of skills require it", usable=this_machine().landlock_abi > 0)
    found: SandboxTarget = request.getfixturevalue(f"{request.param}_place")
    return found


def held(proof: Proof) -> bool:
    assert [each for each in proof.judged if each.verdict is not Verdict.HELD] == []
    assert proof.verdict is Verdict.HELD, proof.invalid
    return True


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_skills_policy_is_proven_there_by_every_layer(
    place: SandboxTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shown = asyncio.run(proving.prove(load_policy(SKILL), place))
    assert held(shown.proof)
    assert {*shown.proof.layers} == ALL
    assert asyncio.run(proving.prove(load_policy(SKILL), place)).remembered
    assert not asyncio.run(proving.gather_evidence(place, override_policy(load_policy(SKILL), QUICK))).remembered


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_loss_of_a_layer_is_noticed_there(place: SandboxTarget) -> None:
    policy = override_policy(load_policy(SKILL), QUICK)
    specification = build_confinement(policy, this_machine(), place=place.kind)[0]
    turns = asyncio.Semaphore(2)

    async def without(layer: str) -> Proof:
        async with turns:
            return await proving.run_attempts(policy, LAYERS[layer][0](specification), this_machine(), place)

    async def all_of_them() -> dict[str, Proof]:
        layers = [layer for layer in LAYERS if layer not in ALWAYS.get(place.kind, ())]
        return dict(zip(layers, await asyncio.gather(*map(without, layers)), strict=True))

    shown = asyncio.run(all_of_them())
    unnoticed = [layer for layer, proof in shown.items() if LAYERS[layer][1] not in proof.broken_rules]
    assert unnoticed == []


def test_an_image_that_is_another_one_is_another_proof(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("1")
    before = asyncio.run(fingerprint_enforcers(SandboxTarget("singularity", str(tmp_path))))
    assert asyncio.run(fingerprint_enforcers(SandboxTarget("singularity", str(tmp_path)))) == before
    (tmp_path / "bin" / "python3").write_text("22")
    assert asyncio.run(fingerprint_enforcers(SandboxTarget("singularity", str(tmp_path)))) != before


def test_an_image_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(PlaceUnavailable, match="cannot be read: No such file"):
        asyncio.run(fingerprint_enforcers(SandboxTarget("singularity", str(tmp_path / "no.sif"))))


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ("bubblewrap", LOCAL),
        ("docker:python:3.11", SandboxTarget("docker", "python:3.11")),
        ("singularity:/srv/torch.sif", SandboxTarget("singularity", "/srv/torch.sif")),
    ],
)
def test_a_target_names_where_sandboxes_are_made(target: str, place: SandboxTarget) -> None:
    assert parse_sandbox_target(target) == place


@pytest.mark.parametrize(
    "target", ["local", "ssh://host", "docker:@web", "docker:python:3.11+ssh://host", "singularity:@a"]
)
def test_what_cannot_be_looked_at_from_outside_is_refused(target: str) -> None:
    with pytest.raises(Unsupported):
        parse_sandbox_target(target)


def test_in_a_container_the_system_is_the_images_and_the_filter_is_given_once() -> None:
    host = replace(this_machine(), uid=0, landlock_abi=7, versions={"apptainer": "1"}, user_namespaces="")
    docker = build_confinement(load_policy(SKILL), host, place="docker")[0]
    singularity = build_confinement(load_policy(SKILL), host, place="singularity")[0]
    assert (docker.binds, docker.links, singularity.binds) == ((), (), ())
    assert (bool(docker.seccomp), bool(docker.filter_document)) == (False, True)
    assert (bool(singularity.seccomp), bool(singularity.filter_document)) == (True, False)
    assert "/sys" in docker.masked


def test_an_engine_is_asked_for_our_own_user_where_we_are_no_root() -> None:
    host = replace(this_machine(), uid=1234, landlock_abi=7, user_namespaces="")
    assert build_confinement(load_policy(SKILL), host, place="docker")[0].uid == 1234
