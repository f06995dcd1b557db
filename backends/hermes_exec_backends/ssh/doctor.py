"""What connections need on this side."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import stat
from pathlib import Path

from hermes_exec.backend import Check
from hermes_exec.config.paths import home


def checks() -> list[Check]:
    """Look at paramiko, the ``ssh`` program, the agent, and the files that ssh keeps."""
    return [_paramiko(), _program(), _agent(), _known_hosts(), *_keys()]


def _paramiko() -> Check:
    try:
        version = importlib.metadata.version("paramiko")
    except importlib.metadata.PackageNotFoundError:
        return Check("paramiko", "missing", "it is not installed", "pip install 'hermes-exec[ssh]'")
    return Check("paramiko", "ok", version)


def _program() -> Check:
    path = shutil.which("ssh")
    if path:
        return Check("ssh", "ok", path)
    return Check("ssh", "warning", "transport = 'openssh' needs it", "apt-get install openssh-client")


def _agent() -> Check:
    path = os.environ.get("SSH_AUTH_SOCK", "")
    if not path:
        return Check("agent", "warning", "SSH_AUTH_SOCK is not set; only key files are tried", "eval $(ssh-agent)")
    if not Path(path).is_socket():
        return Check("agent", "warning", f"SSH_AUTH_SOCK names {path}, which is no socket", "eval $(ssh-agent)")
    return Check("agent", "ok", path)


def _known_hosts() -> Check:
    path = home() / ".ssh" / "known_hosts"
    if path.is_file():
        return Check("known hosts", "ok", str(path))
    return Check(
        "known hosts", "warning", f"no {path}: no host is known", "connect once with ssh, or accept_new = true"
    )


def _keys() -> list[Check]:
    """Private keys that others can read, which ssh would refuse."""
    open_to_others = [
        path
        for name in ("id_ed25519", "id_ecdsa", "id_rsa")
        if (path := home() / ".ssh" / name).is_file() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    ]
    return [Check("key", "warning", f"{path} can be read by others", f"chmod 600 {path}") for path in open_to_others]
