"""A sandbox that cannot be deleted does not hide how the command in it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.rigs import daytona_rig, modal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rigs.clouds import Cloud


def refuse_deletions(cloud: Cloud) -> None:
    if cloud.options["type"] == "modal":
        modal.server().call("fail", "SandboxTerminate*", status="PERMISSION_DENIED", times=99)
    else:
        daytona_rig.server().fail("delete_sandbox", status=403, message="not yours", times=99)


def test_the_commands_exit_code_stays_and_one_line_says_what_may_cost(cloud: Cloud, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_STATE_HOME": str(tmp_path),
        "HERMES_EXEC_CONFIG": str(cloud.configure(tmp_path)),
    }
    refuse_deletions(cloud)
    argv = [sys.executable, "-m", "hermes_exec", "run", "--on", "box", "--", "echo out; exit 7"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=environment, input="", timeout=170)
    assert (done.stdout, done.returncode) == ("out\n", 7), done.stderr
    (line,) = done.stderr.splitlines()
    assert "it may cost until its lease ends it" in line
    assert "hermes-exec backends --cost" in line
    assert len(cloud.alive()) == 1
    if cloud.options["type"] == "modal":
        modal.server().call("heal")
