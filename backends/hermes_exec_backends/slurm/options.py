"""Conversion of a profile to the options of ``sbatch``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.slurm import SlurmProfile

_MIB = 1 << 20


def submit_options(profile: SlurmProfile) -> list[str]:
    """Return the options. The job is not requeued: that would silently lose its processes."""
    values = {
        "job-name": profile.job_name,
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "reservation": profile.reservation,
        "nodes": profile.nodes,
        "cpus-per-task": profile.cpus,
        "mem": None if profile.memory is None else f"{max(1, profile.memory // _MIB)}M",
        "gpus": profile.gpus,
        "time": profile.time,
        "constraint": profile.constraint,
        "output": "/dev/null",
        "error": "/dev/null",
    }
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return [*words, "--no-requeue", *profile.flags]
