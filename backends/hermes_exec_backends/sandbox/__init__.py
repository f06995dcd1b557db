"""Run one program in one sandbox, started and watched from outside. Shared by several backends."""

from hermes_exec_backends.sandbox.spec import Bind, Confinement, Landlock, Limits, PathRule, PortRule, Tmpfs

__all__ = ["Bind", "Confinement", "Landlock", "Limits", "PathRule", "PortRule", "Tmpfs"]
