"""The Bubblewrap backend: sandboxes of the machine's own system, without a daemon, an image or root."""

from hermes_exec_backends.bubblewrap.backend import BubblewrapBackend

__all__ = ["BubblewrapBackend"]
