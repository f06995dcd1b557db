"""The profile of a Slurm allocation at the place named by `via`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import Count, Gpus, Name, Size, Words

# sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]
_TIME = re.compile(r"[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}", re.ASCII)


def _time(value: str) -> str:
    if not _TIME.fullmatch(value):
        raise ValueError("should be a time such as '02:00:00' or '1-12' (days-hours)")
    return value


class SlurmProfile(Profile, frozen=True):
    """Nodes of a cluster, held from open to close; asked for where `via` says, such as a login node."""

    type: Literal["slurm"] = "slurm"
    """`slurm`."""
    partition: Name | None = None
    """The partition."""
    account: Name | None = None
    """The account to charge."""
    qos: Name | None = None
    """The quality of service."""
    reservation: Name | None = None
    """The reservation to use."""
    job_name: Name = "hermes-exec"
    """The name shown in the queue."""
    nodes: Count = 1
    """How many nodes; commands run on the first."""
    cpus: Count | None = None
    """CPUs of the task."""
    memory: Size | None = None
    """Memory of each node."""
    gpus: Gpus | None = None
    """GPUs: a number, or a kind and a number such as `a100:2`."""
    time: Annotated[str, AfterValidator(_time)] | None = None
    """The time limit, such as `02:00:00` or `1-12`; the partition's own when left out."""
    constraint: Name | None = None
    """Features that the nodes must have."""
    flags: Words = ()
    """More options of salloc, each a word such as `--exclusive`."""
