"""The profiles of the built-in targets, one module each, imported when asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile
    from hermes_exec_backends.profiles.daytona import DaytonaProfile
    from hermes_exec_backends.profiles.docker import DockerProfile
    from hermes_exec_backends.profiles.local import LocalProfile
    from hermes_exec_backends.profiles.modal import ModalProfile
    from hermes_exec_backends.profiles.singularity import SingularityProfile
    from hermes_exec_backends.profiles.slurm import SlurmProfile
    from hermes_exec_backends.profiles.ssh import SshProfile

__all__ = [
    "BubblewrapProfile",
    "DaytonaProfile",
    "DockerProfile",
    "LocalProfile",
    "ModalProfile",
    "SingularityProfile",
    "SlurmProfile",
    "SshProfile",
]


def __getattr__(name: str) -> object:
    # Building one model costs milliseconds, and most programs need one of them.
    if name in __all__:
        module = importlib.import_module(f"{__name__}.{name.removesuffix('Profile').lower()}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
