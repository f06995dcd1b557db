"""Checks of ``doctor`` for Slurm on this machine."""

from __future__ import annotations

import shutil

from hermes_exec.backend import Check
from hermes_exec_backends._shared.doctor import run_program

_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "sinfo")


async def examine() -> list[Check]:
    """Check the commands, then the controller."""
    lacking = [name for name in _COMMANDS if shutil.which(name) is None]
    if lacking:
        remedy = "work from a login node: via = 'ssh://LOGIN'"
        return [Check("commands", "missing", f"no {', '.join(lacking)} on the PATH", remedy)]
    code, out, complaint = await run_program(["sinfo", "--noheader", "--format=%R %a %D %t"])
    if code != 0:
        why = complaint.rpartition("\n")[2]
        return [Check("controller", "missing", f"it does not answer: {why}", "work from a login node: via = …")]
    partitions = "; ".join(" ".join(line.split()) for line in out.splitlines())
    return [Check("controller", "ok", partitions or "no partitions")]
