"""Samples of other projects in their own environments and in ours, on the same machine, in turns of blocks.

Each runs in the other project's released package, in a process of its own. Models are scripted, so that a sample is
what its environment does: commands that start a Python, and files. A sample begins once its environment has run a first
command; that is the start.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.figures import Table, median
from hermes_exec_agent.models import say
from tests.rigs.docker_engine import DEBIAN, engine
from tests.rigs.endpoint import ScriptedEndpoint, Streamed
from tests.rigs.harbor_tasks import write_task
from tests.rigs.peers import ROOT, find_python, install_peer, run_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RATIO, START_S = 1.1, 1.0
"""The limits of a sample, against the project's own, and of a start."""
_HARBOR_TASKS = 4
_USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
_SCRIPT = ROOT / "benchmarks/peers/serve_bridges.py"
_ENVIRONMENT = "hermes_exec_agent.bridges.harbor:HermesExecEnvironment"


@dataclass(frozen=True)
class Side:
    """The figures of one environment, in seconds."""

    start: list[float]
    sample: list[float]
    cpu: list[float]


def figures(rounds: int) -> Sequence[Table]:
    """Return the table."""
    rows: list[tuple[str, ...]] = []
    remarks: list[str] = []
    measures: dict[str, Callable[[Path, int], tuple[Side, Side]]] = {
        "inspect_ai, local": lambda home, rounds: _measure(home, rounds, "inspect", "inspect-ai==0.3.285"),
        "mini-swe-agent, local": lambda home, rounds: _measure(home, rounds, "mini", "mini-swe-agent==2.4.6"),
        "verifiers, local": _measure_verifiers,
        "Harbor, Docker": _measure_harbor,
    }
    for name, measure in measures.items():
        with tempfile.TemporaryDirectory(prefix="hx-bridges-") as home:
            try:
                rows.append(_format(name, *measure(Path(home), rounds)))
            except (pytest.skip.Exception, RuntimeError, subprocess.TimeoutExpired) as error:
                remarks.append(f"{name}: {str(error).splitlines()[-1][:200]}")
    headings = (
        "samples in",
        "ours",
        "its own",
        "ratio",
        "limit",
        "start: ours, its own",
        "limit of ours",
        "CPU of its process: ours, its own",
    )
    return [Table("Bridges", headings, tuple(rows), tuple(remarks))]


def _format(name: str, own: Side, ours: Side) -> tuple[str, ...]:
    sample, theirs = median(ours.sample), median(own.sample)
    cpu = f"{median(ours.cpu) * 1e3:.0f} ms, {median(own.cpu) * 1e3:.0f} ms" if ours.cpu else ""
    return (
        name, f"{sample * 1e3:.0f} ms", f"{theirs * 1e3:.0f} ms", f"{sample / theirs:.2f}", f"≤ {RATIO:g}",
        f"{median(ours.start):.2f} s, {median(own.start):.2f} s", f"{START_S:g} s", cpu,
    )  # fmt: skip


def _measure(home: Path, rounds: int, peer: str, requirement: str, *more: str) -> tuple[Side, Side]:
    """Return the figures of its own environment and of ours."""
    requirements = (requirement, "pytest", "pytest-asyncio") if peer == "inspect" else (requirement,)
    done = run_peer(
        install_peer(*requirements), str(_SCRIPT), peer, str(rounds), *more, cwd=home, limit_s=1800,
        more={"PYTHONPATH": str(home)},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"it ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Side(**found["own"]), Side(**found["ours"])


def _measure_verifiers(home: Path, rounds: int) -> tuple[Side, Side]:
    shutil.copy(ROOT / "tests/bridges/peer/verifiers_rollout.py", home)
    with ScriptedEndpoint([Streamed(say("good"), usage=_USAGE)], forever=True) as endpoint:
        return _measure(home, rounds, "verifiers", "verifiers==0.4.0", endpoint.url)


def _measure_harbor(home: Path, rounds: int) -> tuple[Side, Side]:
    """Measure trials of an oracle, one at a time: the start of the container is the start."""
    python = install_peer("harbor==0.24.0", extras="agent,docker", interpreter=find_python())
    docker = engine()
    docker.image(DEBIAN)
    for number in range(_HARBOR_TASKS):
        folder = write_task(home / f"tasks/t{number}")
        (folder / "solution/solve.sh").write_text("for i in 1 2 3 4 5 6 7 8 9 10; do\n"
                                                  "  python3 -c 'import json, re, subprocess'\ndone\n"
                                                  "echo hello > /app/out\n")  # fmt: skip
    more = {"DOCKER_HOST": docker.address, "DOCKER_CONFIG": str(ROOT / ".cache/compose"), "DOCKER_BUILDKIT": "0"}
    sides = {"docker": Side([], [], []), _ENVIRONMENT: Side([], [], [])}
    for turn in range(1 + max(1, rounds // (4 * _HARBOR_TASKS))):
        for environment, side in sides.items():
            argv = ["run", "-p", "tasks", "-e", environment, "-a", "oracle", "--jobs-dir", f"{turn}", "-n", "1", "-y"]
            done = run_peer(python, str(python.with_name("harbor")), *argv, cwd=home, more=more, limit_s=600)
            if done.returncode:
                raise RuntimeError(f"{done.stdout}{done.stderr}".strip())
            if turn:
                _read_trials(home / str(turn), side)
            shutil.rmtree(home / str(turn))
    return sides["docker"], sides[_ENVIRONMENT]


def _read_trials(folder: Path, side: Side) -> None:
    """Read how long the environments, and the agent and the verifier in them, took."""
    for path in folder.glob("*/*/result.json"):
        result = json.loads(path.read_text())
        if result["verifier_result"] != {"rewards": {"reward": 1.0}}:
            raise RuntimeError(f"Harbor's result is {result['verifier_result']}")
        side.start.append(_read_span(result["environment_setup"]))
        side.sample.append(_read_span(result["agent_execution"]) + _read_span(result["verifier"]))


def _read_span(span: dict[str, str]) -> float:
    begin, end = (datetime.fromisoformat(span[key]) for key in ("started_at", "finished_at"))
    return (end - begin).total_seconds()
