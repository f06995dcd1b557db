"""Start a job that survives the process that started it.

A child process starts the job and is killed. The command line then finds the job by its name, shows its log from the
start and ends with its exit code. The records of jobs are in a temporary directory, so that no other job is touched.

    python examples/jobs.py [TARGET]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

STARTER = """
import sys, time
import hermes_exec.sync as hx

terminal = hx.open(sys.argv[1])
job = terminal.start("for n in 1 2 3; do echo step $n; sleep 0.3; done; exit 4", name="steps")
print(job.id, flush=True)
time.sleep(600)
"""
COMMAND_LINE = [sys.executable, "-m", "hermes_exec"]


def main(target: str = "local") -> None:
    """Run the example on ``target``."""
    with tempfile.TemporaryDirectory() as state:
        env = os.environ | {"XDG_STATE_HOME": state}
        starter = [sys.executable, "-c", STARTER, target]
        with subprocess.Popen(starter, env=env, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None  # noqa: S101  for type checkers
            child.stdout.readline()  # the job has started
            child.send_signal(signal.SIGKILL)
        print("the starter was ended by signal", -child.returncode)

        job = subprocess.run([*COMMAND_LINE, "attach", "steps"], check=False, capture_output=True, text=True, env=env)
        print(job.stdout, end="")
        print("the job ended with exit code", job.returncode)
        subprocess.run([*COMMAND_LINE, "jobs", "--prune"], check=True, capture_output=True, env=env)


if __name__ == "__main__":
    main(*sys.argv[1:])
