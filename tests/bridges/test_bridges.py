"""Our Terminal inside other projects' harnesses, each released package in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hermes_exec_agent.models import say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply
from tests.rigs.batches import PROGRAM
from tests.rigs.breadth import leave_out
from tests.rigs.endpoint import ScriptedEndpoint, Streamed
from tests.rigs.peers import install_peer, run_peer
from tests.rigs.processes import with_mark

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


@pytest.mark.timeout(600)
def test_a_local_sandbox_passes_the_checks_that_inspect_ships(tmp_path: Path) -> None:
    python = install_peer(*INSPECT)
    shutil.copy(PEER / "inspect_checks.py", tmp_path)
    argv = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", ".", "-rA"]
    done = run_peer(python, *argv, "inspect_checks.py", cwd=tmp_path)
    lines = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", done.stdout, re.MULTILINE)
    ends = {name: end for end, name in lines}
    failed = {name for name, end in ends.items() if end != "PASSED"}
    assert len(ends) >= 44, done.stdout[-2000:]
    assert failed == AS_ROOT if os.geteuid() == 0 else failed <= OTHER_USERS, failed


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
    assert (found["accuracy"], len(set(found["folders"]))) == (1.0, 4)
    assert not any(Path(folder).exists() for folder in found["folders"])


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
