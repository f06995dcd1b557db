"""Bubblewrap: a sandbox of the machine's own system, for which no daemon, no image and no root is needed."""

from hermes_exec_backends.bubblewrap.backend import BubblewrapBackend

__all__ = ["BubblewrapBackend"]
