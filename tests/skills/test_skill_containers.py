"""A registered skill in a container of Docker or Apptainer: proven there, looked at from outside, run once."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import runner
from hermes_exec_policies.gate.grants import Grants
from hermes_exec_policies.load import load_policy
from hermes_exec_policies.start_program import SandboxTarget
from tests.conftest import require_part
from tests.rigs import apptainer as apptainer_rig
from tests.rigs import docker_engine
from tests.rigs.skill_makers import PERSON, registered, report_of, tree_in

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_agent.skills.registry.home import RegistryHome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TEXT = """
import os
def run(a: int, b: int) -> dict:
    print('said')
    with open('/app/data/left.txt', 'w') as file:
        file.write('left')
    def denied(path):
        try:
            open(path, 'w')
        except OSError as error:
            return error.errno
    return {
        'sum': a + b, 'file': __file__, 'denied': denied('/etc/x'), 'itself': denied(__file__),
        'skills': sorted(os.listdir('/app/skills')), 'environ': sorted(os.environ),
    }
"""


SHARING = """
def run(a: int, b: int) -> dict:
    def put(path):
        try:
            with open(path, 'w') as file:
                return file.write('new')
        except OSError as error:
            return error.errno
    with open('/app/folders/in/one') as file:
        return {'read': file.read(), 'denied': put('/app/folders/in/one'), 'written': put('/app/folders/out/one')}
"""


@pytest.fixture
def docker() -> SandboxTarget:
    require_part("root", "it looks at the processes of another user", usable=os.geteuid() == 0)
    engine = docker_engine.engine()
    return SandboxTarget("docker", engine.image(docker_engine.DEBIAN), engine.address)


@pytest.fixture
def apptainer() -> Generator[SandboxTarget]:
    require_part("root", "it becomes another user", usable=os.geteuid() == 0)
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield SandboxTarget("singularity", str(apptainer_rig.tree(Path(folder))))


@pytest.mark.parametrize("kind", ["docker", "apptainer"])
def test_a_skill_runs_in_a_container_as_on_this_machine(
    request: pytest.FixtureRequest, home: RegistryHome, tmp_path: Path, kind: str
) -> None:
    place: SandboxTarget = request.getfixturevalue(kind)
    registered(home, tmp_path / "skill", files={"scripts/main.py": TEXT})
    files = tmp_path / "files"
    work = runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}, files=files, place=place)
    outcome = asyncio.run(work)
    assert outcome.ok, (outcome.error, outcome.logs)
    assert (outcome.result["sum"], outcome.logs, outcome.files) == (3, "said\n", ("left.txt",))
    assert outcome.result["file"] == "/app/skills/add_numbers/scripts/main.py"
    assert {outcome.result["denied"], outcome.result["itself"]} <= {1, 13, 30}
    assert outcome.result["skills"] == ["add_numbers"]
    assert "HOME" in outcome.result["environ"]
    assert outcome.declared == ()


@pytest.mark.parametrize("kind", ["docker", "apptainer"])
def test_a_skill_in_a_container_has_the_folders_that_it_was_granted(
    request: pytest.FixtureRequest, home: RegistryHome, tmp_path: Path, kind: str
) -> None:
    place: SandboxTarget = request.getfixturevalue(kind)
    with tempfile.TemporaryDirectory(prefix="hx-", dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        for name in ("in", "out"):
            (folder / name).mkdir()
            (folder / name).chmod(0o777)
        (folder / "in/one").write_text("one")
        (folder / "in/one").chmod(0o666)
        tree = tree_in(tmp_path / "skill", {"scripts/main.py": SHARING})
        report = report_of(tree, grants=Grants(folders=(f"in={folder}/in", f"out={folder}/out:rw")).facts())
        Registry(home).register(tree, report, load_policy("skill-run"), author=PERSON, kernel=os.uname().release)
        outcome = asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}, place=place))
        assert outcome.ok, (outcome.error, outcome.logs)
        assert (outcome.result["read"], outcome.result["written"]) == ("one", 3)
        assert outcome.result["denied"] in {1, 13, 30}
        assert ((folder / "in/one").read_text(), (folder / "out/one").read_text()) == ("one", "new")
