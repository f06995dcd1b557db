"""Batches next to Harbor on the same folder and engine, and next to hermes-agent's batch runner on one endpoint.

Both are commands of a person, from their start to their end. Those of one system are one command, so that its start is
in the figure of each trial, as it is with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.figures import Figure, spent
from benchmarks.peers.serve import install
from hermes_exec_agent.models import say
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import Reply
from tests.rigs.batches import PROGRAM
from tests.rigs.docker_engine import DEBIAN, engine
from tests.rigs.endpoint import ScriptedEndpoint, Streamed
from tests.rigs.harbor_tasks import write_task
from tests.rigs.peers import find_python, install_peer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_THOUGHT = "<REASONING_SCRATCHPAD>A file is wanted.</REASONING_SCRATCHPAD>"
"""The batch runner of hermes-agent leaves out trajectories without reasoning."""
_HARBOR = 3.0
"""What ours should be at least, in trials of Harbor."""


def measure_peers(home: Path, trials: int) -> tuple[list[Figure], list[str]]:
    """Measure both; also return which could not be measured, and why."""
    figures: list[Figure] = []
    missing: list[str] = []
    for name, measure in (("Harbor", measure_harbor), ("hermes-agent", measure_hermes_agent)):
        folder = home / name
        folder.mkdir(parents=True)
        try:
            figures.append(measure(folder, trials))
        except pytest.skip.Exception as reason:
            missing.append(f"{name}: {reason}")
        except (subprocess.CalledProcessError, OSError, RuntimeError) as error:
            missing.append(f"{name}: {str(error).splitlines()[-1][:200]}")
    return figures, missing


def measure_harbor(home: Path, trials: int) -> Figure:
    """Measure oracles of one folder of tasks in containers of one engine, by Harbor's command and by ours."""
    python = install_peer("harbor==0.24.0", extras="agent,docker", interpreter=find_python())
    docker = engine()
    docker.image(DEBIAN)
    for number in range(trials):
        write_task(home / f"tasks/t{number}")
    environ = _create_environ(home, DOCKER_HOST=docker.address)
    environment = "hermes_exec_agent.bridges.harbor:HermesExecEnvironment"

    def run_theirs(number: int) -> None:
        argv = ["run", "-p", "tasks", "-e", environment, "-a", "oracle", "--jobs-dir", f"j{number}", "-n", "4", "-y"]
        _run(python.with_name("harbor"), *argv, cwd=home, environ=environ)
        rewards = [
            json.loads(each.read_text())["verifier_result"]["rewards"]
            for each in home.glob(f"j{number}/*/*/result.json")
        ]
        if rewards != [{"reward": 1.0}] * trials:
            raise RuntimeError(f"Harbor's rewards are {rewards}")

    def run_ours(number: int) -> None:
        argv = ["batch", "run", "tasks", "--agent", "oracle", "-n", "4", "--into", f"r{number}"]
        _run(PROGRAM, *argv, cwd=home, environ=environ)

    ours, theirs = _compare(run_ours, run_theirs)
    name = f"{trials} oracles of Harbor's format in containers"
    return Figure(name, "trials per s", trials / ours, "Harbor", trials / theirs, _HARBOR, "higher")


def measure_hermes_agent(home: Path, trials: int) -> Figure:
    """Measure trials of two replies of one endpoint, by hermes-agent's batch runner and by ours."""
    python = install("hermes-agent")
    asks = [f"Write hello into the file out, number {number}." for number in range(trials)]
    (home / "data.jsonl").write_text("".join(f"{json.dumps({'prompt': ask})}\n" for ask in asks))
    tasks = ({"id": f"t{number}", "instruction": ask, "check": "test -s out"} for number, ask in enumerate(asks))
    (home / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    with ScriptedEndpoint([_work], forever=True) as endpoint:
        environ = _create_environ(
            home, LLM_PROVIDER="custom", LLM_BASE_URL=endpoint.url, DEFAULT_MODEL="m", OPENAI_API_KEY="x",
            TERMINAL_ENV="local", HERMES_HOME=str(home / "h"),
        )  # fmt: skip

        def run_theirs(number: int) -> None:
            argv = ["-m", "batch_runner", "--dataset_file=data.jsonl", "--batch_size=2", f"--run_name=r{number}",
                    "--model=m", "--api_key=x", f"--base_url={endpoint.url}", "--num_workers=4"]  # fmt: skip
            _run(python, *argv, cwd=home, environ=environ)
            lines = (home / f"data/r{number}/trajectories.jsonl").read_text().splitlines()
            if len(lines) != trials:
                raise RuntimeError(f"the batch runner of hermes-agent wrote {len(lines)} of {trials} trajectories")

        def run_ours(number: int) -> None:
            argv = ["batch", "run", "tasks.jsonl", "--model", "main", "-n", "4", "--into", f"r{number}"]
            _run(PROGRAM, *argv, cwd=home, environ=environ)

        ours, theirs = _compare(run_ours, run_theirs)
    name = f"{trials} trials of two replies"
    return Figure(name, "trials per s", trials / ours, "hermes-agent's batch runner", trials / theirs)


def _work(body: dict[str, Any]) -> Streamed:
    """Write the file, then end."""
    if body["messages"][-1]["role"] != "user":
        return Streamed(say("Done."))
    call = ToolCall("call_1", "terminal", json.dumps({"command": "echo hello > out"}))
    return Streamed(Reply(Message("assistant", _THOUGHT, (call,)), "tool_calls"))


def _create_environ(home: Path, **more: str) -> dict[str, str]:
    path = f"{PROGRAM.parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    # Prices are not fetched, which would take ten seconds of each start.
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "LITELLM_LOCAL_MODEL_COST_MAP": "True", **more}


def _run(program: Path, *argv: str, cwd: Path, environ: dict[str, str]) -> None:
    done = subprocess.run([program, *argv], cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{program.name}: {f'{done.stdout}{done.stderr}'.strip()[-1000:]}")


def _compare(ours: Callable[[int], None], theirs: Callable[[int], None]) -> tuple[float, float]:
    """Return the seconds of both, each after a run that builds images and fills caches."""
    for run in (ours, theirs):
        run(0)
    return spent(lambda: ours(1)), spent(lambda: theirs(1))
