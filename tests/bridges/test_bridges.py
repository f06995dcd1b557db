"""Our Terminal inside other projects' harnesses, each released package in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply
from hermes_exec_backends.profiles import BubblewrapProfile, SingularityProfile
from tests.conftest import require_part
from tests.rigs import apptainer
from tests.rigs.batches import PROGRAM, BatchPerson
from tests.rigs.breadth import leave_out
from tests.rigs.docker_engine import DEBIAN, engine
from tests.rigs.endpoint import ScriptedEndpoint, Streamed
from tests.rigs.harbor_tasks import write_task
from tests.rigs.ordinary import NOBODY, run_as_nobody
from tests.rigs.peers import find_python, install_peer, run_peer
from tests.rigs.processes import with_mark
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.config.profile import Profile

leave_out("takes long")

PEER = Path(__file__).parent / "peer"
INSPECT = ("inspect-ai==0.3.285", "pytest", "pytest-asyncio")
AS_ROOT = {
    "test_read_file_not_allowed",
    "test_write_binary_file_without_permissions",
    "test_write_text_file_without_permissions",
}
"""Root reads and writes every file."""
OTHER_USERS = {"test_exec_as_user", "test_exec_as_nonexistent_user"}
"""Only root runs commands as another user."""


CHECKS = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", ".", "-rA",
          "inspect_checks.py"]  # fmt: skip


def read_failed(output: str) -> set[str]:
    """Return the checks that failed."""
    ends = {name: end for end, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", output, re.MULTILINE)}
    assert len(ends) >= 44, output[-2000:]
    return {name for name, end in ends.items() if end != "PASSED"}


@pytest.mark.timeout(600)
def test_a_local_sandbox_passes_the_checks_that_inspect_ships(tmp_path: Path) -> None:
    python = install_peer(*INSPECT)
    shutil.copy(PEER / "inspect_checks.py", tmp_path)
    failed = read_failed(run_peer(python, *CHECKS, cwd=tmp_path).stdout)
    assert failed == AS_ROOT if os.geteuid() == 0 else failed <= OTHER_USERS, failed


@pytest.mark.timeout(600)
def test_an_ordinary_user_passes_the_checks_that_inspect_ships() -> None:
    python = install_peer(*INSPECT)
    with TemporaryDirectory(prefix="hx-inspect-", dir="/tmp") as name:
        home = Path(name)
        home.chmod(0o777)
        shutil.copy(PEER / "inspect_checks.py", home)
        env = {"PATH": os.defpath, "HOME": name, "LANG": "C.UTF-8"}
        done = run_as_nobody(CHECKS, cwd=home, env=env, limit_s=500, program=(str(python),))
        assert read_failed(done.stdout.decode()) == {"test_exec_as_user"}, done.stderr[-500:]


@contextmanager
def open_place(kind: str, folder: Path) -> Generator[Profile]:
    """Yield a target of that kind, in which commands run as an ordinary user."""
    if kind == "docker":
        yield engine().profile(DEBIAN, user="nobody")
    elif kind == "ssh":
        with Sshd() as daemon:
            yield daemon.profile()
    elif kind == "bubblewrap":
        require_part("bwrap", "makes the sandbox")
        yield BubblewrapProfile(user=NOBODY) if os.geteuid() == 0 else BubblewrapProfile()
    else:
        apptainer.program()
        yield SingularityProfile(image=str(apptainer.tree(folder)))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["docker", "ssh", "bubblewrap", "singularity"])
def test_other_targets_pass_the_checks_that_inspect_ships(kind: str) -> None:
    python = install_peer(*INSPECT, extras="docker,ssh,singularity")
    with TemporaryDirectory(prefix="hx-inspect-", dir="/tmp") as name, open_place(kind, Path(name)) as profile:
        home = Path(name)
        home.chmod(0o777)
        shutil.copy(PEER / "inspect_checks.py", home)
        folder = home / ".config/hermes_exec"
        folder.mkdir(parents=True)
        values = profile.model_dump(mode="json", exclude_unset=True) | {"type": profile.type}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
        (folder / "hermes.toml").write_text("\n".join(["[backends.box]", *lines]))
        more = {"HERMES_TARGET": "box"}
        if kind == "singularity":  # an ordinary user starts the container
            env = {"PATH": os.defpath, "HOME": name, "LANG": "C.UTF-8", **more}
            output = run_as_nobody(CHECKS, cwd=home, env=env, limit_s=500, program=(str(python),)).stdout.decode()
        else:
            output = run_peer(python, *CHECKS, cwd=home, limit_s=500, more=more).stdout
    # The images have no `adduser`, and only root could run it.
    assert read_failed(output) == {"test_exec_as_user"}, output[-2000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", ["local", "by-name"])
def test_a_whole_evaluation_of_inspect_runs_and_leaves_nothing(tmp_path: Path, target: str) -> None:
    python = install_peer(*INSPECT)
    (tmp_path / ".config/hermes_exec").mkdir(parents=True)
    (tmp_path / ".config/hermes_exec/hermes.toml").write_text("[backends.here]\ntype = 'local'\n")
    done = run_peer(python, str(PEER / "inspect_eval.py"), target, str(tmp_path / "logs"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == "success", found
    count = 40 if target == "by-name" else 4  # 20 at once
    assert (found["accuracy"], len(set(found["folders"]))) == (1.0, count)
    assert not any(Path(folder).exists() for folder in found["folders"])
    assert not with_mark("4712.5")


@pytest.mark.timeout(300)
def test_mini_swe_agent_works_in_a_target(tmp_path: Path) -> None:
    python = install_peer("mini-swe-agent==2.4.6")
    done = run_peer(python, str(PEER / "mini_task.py"), "local", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["result"] == {"exit_status": "Submitted", "submission": "hello\n"}
    assert (found["codes"], found["system"]) == ([3], "work on Linux")
    assert (found["slow"]["output"], found["slow"]["returncode"]) == ("before\n", -1)
    assert "hello" not in json.dumps(found["serialized"])
    assert not with_mark("31.5")


USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}


def answer(body: dict[str, Any]) -> Streamed:
    """Say good to the harness of the test, and write it into a file for our agent."""
    last = body["messages"][-1]
    if not body.get("tools") or last["role"] != "user":
        return Streamed(say("good"), usage=USAGE)
    call = ToolCall(f"call_{len(body['messages'])}", "terminal", json.dumps({"command": "echo good > answer"}))
    return Streamed(Reply(Message("assistant", "", (call,)), "tool_calls"), usage=USAGE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("harness", ["of the test", "our agent"])
def test_a_rollout_of_verifiers_runs_in_a_target(tmp_path: Path, harness: str) -> None:
    python = install_peer("verifiers==0.4.0")
    program = "-" if harness == "of the test" else str(PROGRAM)
    shutil.copy(PEER / "verifiers_rollout.py", tmp_path)
    with ScriptedEndpoint([answer], forever=True) as endpoint:
        done = run_peer(python, "verifiers_rollout.py", "local", endpoint.url, program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["ok"], found["errors"], found["reward"]) == (True, [], 1.0), found
    assert found["nodes"] >= (2 if program == "-" else 4)
    assert found["missing"] == 127
    assert not Path(found["folder"]).exists()
    assert not with_mark("4711.5")
    assert not [*Path("/tmp").glob("hermes-harness.*"), *Path("/tmp").glob("hermes-prompt-*")]


ENVIRONMENT = "hermes_exec_agent.bridges.harbor:HermesExecEnvironment"
AGENT = "hermes_exec_agent.bridges.harbor:HermesAgent"


def work(body: dict[str, Any]) -> Streamed:
    """Solve the task of Harbor's format."""
    if body["messages"][-1]["role"] != "user":
        return Streamed(say("Done."), usage=USAGE)
    call = ToolCall("call_1", "terminal", json.dumps({"command": "echo hello > out"}))
    return Streamed(Reply(Message("assistant", "", (call,)), "tool_calls"), usage=USAGE)


COMPOSE = Path(__file__).parents[2] / ".cache/compose"
"""A folder of settings of Docker, in which provisioning puts Compose 2 where the machine has none."""
REWARDS = {"oracle": 1.0, "nop": 0.0}
"""The rewards of agents, however a task of Harbor's format is run."""


def write_tasks(folder: Path) -> None:
    """Write a task, and one whose agent is another user."""
    write_task(folder / "first")
    user = '[agent]\nuser = "nobody"\n'
    write_task(folder / "second", user, dockerfile=f"FROM {DEBIAN}\nWORKDIR /app\nRUN chmod 777 /app\n")


def run_harbor(folder: Path, environment: str, *agents: dict[str, str], more: dict[str, str]) -> dict[str, Any]:
    """Run the tasks of a folder by Harbor; return what each agent has of each task."""
    python = install_peer("harbor==0.24.0", extras="agent,docker", interpreter=find_python())
    dock = engine()
    dock.image(DEBIAN)
    (folder / "agents.json").write_text(json.dumps({"agents": agents}))
    argv = ["run", "-c", "agents.json", "-p", "tasks", "-e", environment, "--jobs-dir", "jobs", "-n", "3", "-y"]
    done = run_peer(
        python, str(python.with_name("harbor")), *argv, cwd=folder, more={"DOCKER_HOST": dock.address, **more}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(run_peer(python, str(PEER / "harbor_job.py"), "jobs", cwd=folder).stdout)
    return found


@pytest.mark.timeout(600)
def test_tasks_of_harbor_score_the_same_by_harbor_and_by_batches(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks")
    agents = ({"name": "oracle"}, {"name": "nop"}, {"import_path": AGENT})
    with ScriptedEndpoint([work], forever=True) as endpoint:
        model = {"LLM_PROVIDER": "custom", "LLM_BASE_URL": endpoint.url, "DEFAULT_MODEL": "m"}
        found = run_harbor(tmp_path, ENVIRONMENT, *agents, more=model)
    assert {name: each["rewards"] for name, each in found.items()} == {
        f"{agent} {task}": {"reward": reward}
        for agent, reward in {**REWARDS, "hermes-exec": 1.0}.items()
        for task in ("first", "second")
    }, found
    ours = [found["hermes-exec first"], found["hermes-exec second"]]
    assert {(each["tokens"], each["recorded_tokens"]) for each in ours} == {(14, 14)}
    ends: list[list[Any]] = [["agent", ["terminal"]], ["agent", []]]
    assert all(each["steps"][-2:] == ends and each["steps"][-3][0] == "user" for each in ours)
    person = BatchPerson(tmp_path, DOCKER_HOST=engine().address)
    for agent, reward in REWARDS.items():
        done = person.run("run", "tasks", "--agent", agent, "--into", agent)
        assert done.returncode == 0, done.stderr
        rows = person.run("export", agent).stdout.splitlines()
        assert [json.loads(row)["reward"] for row in rows] == [reward, reward]
    engine().wait_until_none()


@pytest.mark.timeout(600)
def test_the_docker_environment_of_harbor_gives_the_same_rewards(tmp_path: Path) -> None:
    docker = {"DOCKER_CONFIG": str(COMPOSE), "DOCKER_BUILDKIT": "0"}
    argv = [require_part("docker"), "compose", "version"]
    if subprocess.run(argv, check=False, capture_output=True, env={**os.environ, **docker}).returncode:
        pytest.skip(
            "Harbor's own environment needs Compose 2. Try: ./dev test --provision, where apt has Debian's archive"
        )
    write_tasks(tmp_path / "tasks")
    found = run_harbor(tmp_path, "docker", {"name": "oracle"}, {"name": "nop"}, more=docker)
    assert {name: each["rewards"] for name, each in found.items()} == {
        f"{agent} {task}": {"reward": reward} for agent, reward in REWARDS.items() for task in ("first", "second")
    }, found
