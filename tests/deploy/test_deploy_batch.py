"""deploy/examples/agent.sbatch, submitted to a cluster as anybody would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.models import ask, say
from tests.rigs import slurm
from tests.rigs.bounded import PATIENCE_S, wait_until
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).parents[2] / "deploy/examples/agent.sbatch"


@pytest.fixture(scope="module")
def cluster() -> Generator[slurm.Cluster]:
    with slurm.cluster(nodes=1) as running:
        yield running


def ended(cluster: slurm.Cluster, job: str) -> str:
    """How a job ended, once it has."""
    state = ""

    def is_over() -> bool:
        nonlocal state
        found = re.search(r"JobState=(\w+)", cluster.run("scontrol", "show", "job", job, "--oneliner"))
        state = found[1] if found is not None else ""
        return state not in {"", "PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}

    wait_until(is_over, PATIENCE_S)
    return state


def test_the_agent_works_as_a_job_and_answers_in_the_folder_it_was_submitted_from(
    cluster: slurm.Cluster, tmp_path: Path
) -> None:
    replies = [ask(("terminal", {"command": "echo seen > note; cat note"})), say("The first error is in b.log.")]
    with ScriptedEndpoint(replies) as endpoint:
        variables = {
            "OPENAI_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": KEY,
            "DEFAULT_MODEL": "scripted",
            "QUESTION": "Which of these logs has the first error?",
            "HERMES_APPROVE": "allow",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **{f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
        }
        (folder := tmp_path / "logs").mkdir()
        submitted = subprocess.run(
            ["sbatch", "--parsable", str(SCRIPT)],
            check=False,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**cluster.env, **variables},
        )
        assert submitted.returncode == 0, submitted.stderr
        job = submitted.stdout.strip()
        state = ended(cluster, job)
    said = (folder / f"hermes-agent-{job}.out").read_text()
    assert state == "COMPLETED", said
    assert "The first error is in b.log." in said.splitlines()
    assert "terminal  echo seen > note; cat note  (local, exit code 0" in said
    assert (folder / "note").read_text() == "seen\n"
    assert KEY not in said
