"""The transport for targets without Python: each command is a process of its own, started through ``sh``."""

from hermes_exec.transport.shell.transport import ShellTransport

__all__ = ["ShellTransport"]
