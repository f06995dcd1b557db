"""Slurm: nodes of a cluster, allocated from open to close."""

from hermes_exec_backends.slurm.backend import SlurmBackend

__all__ = ["SlurmBackend"]
