"""The profile of a Slurm allocation at the target named by `via`."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import Count, Gpus, Name, Size, Words

# sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]
_TIME = re.compile(r"[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}", re.ASCII)


def _time(value: str) -> str:
    if not _TIME.fullmatch(value):
        raise ValueError("should be a time such as '02:00:00' or '1-12' (days-hours)")
    return value


def _job(value: str) -> str:
    if not re.fullmatch("[0-9]+(_[0-9]+)?", value, re.ASCII):
        raise ValueError("should be the number of a job, such as '1234'")
    return value


class SlurmProfile(Profile, frozen=True):
    """Nodes of a cluster, held from open to close; asked for where `via` says, such as a login node."""

    attach_field: ClassVar[str | None] = "job"

    type: Literal["slurm"] = "slurm"
    """`slurm`."""
    job: Annotated[str, AfterValidator(_job)] | None = None
    """A running job to work in instead of a new allocation; it is left running at the end."""
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
    """More options of sbatch, each a word such as `--exclusive`."""
