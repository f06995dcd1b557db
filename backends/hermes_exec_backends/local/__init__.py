"""This machine: the reference for every other target."""

from hermes_exec_backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
