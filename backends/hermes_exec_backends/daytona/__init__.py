"""Daytona sandboxes."""

from hermes_exec_backends.daytona.backend import DaytonaBackend

__all__ = ["DaytonaBackend"]
