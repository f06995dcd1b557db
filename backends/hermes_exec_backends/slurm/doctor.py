"""What ``doctor`` says of Slurm on this machine."""

from __future__ import annotations

import asyncio
import shutil

from hermes_exec.backend import Check

_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "sinfo")


async def examine() -> list[Check]:
    """Look for the commands, then for a controller."""
    lacking = [name for name in _COMMANDS if shutil.which(name) is None]
    if lacking:
        remedy = "work from a login node: via = 'ssh://LOGIN'"
        return [Check("commands", "missing", f"no {', '.join(lacking)} on the PATH", remedy)]
    process = await asyncio.create_subprocess_exec(
        "sinfo",
        "--noheader",
        "--format=%R %a %D %t",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        said = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return [Check("controller", "missing", f"it does not answer: {said}", "work from a login node: via = …")]
    lines = out.decode("utf-8", "replace").splitlines()
    return [Check("controller", "ok", "; ".join(" ".join(line.split()) for line in lines) or "no partitions")]
