"""SSH hosts, reached through paramiko or through the ``ssh`` program."""

from hermes_exec_backends.ssh.backend import SshBackend

__all__ = ["SshBackend"]
