"""Checks of ``doctor`` for SSH: the client, the agent, known hosts and private keys on this machine."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec.config.paths import home_folder
from hermes_exec_backends._shared.doctor import check_package

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.ssh import SshProfile

_USUAL = Path(".ssh/known_hosts")
"""Relative to the home directory."""


def checks(profile: SshProfile | None = None) -> list[Check]:
    """Check paramiko, the ``ssh`` program, the agent, and the default files of ssh, or those that a profile names."""
    if profile is None:
        return [_paramiko(), _program(), _agent(), _check_known_hosts(_USUAL), *_open_keys(_usual_keys())]
    client = _program(needed=True) if profile.transport == "openssh" else _paramiko()
    agent = [_agent()] if profile.agent else []
    key = [_key(profile.key_path)] if profile.key_path else _open_keys(_usual_keys())
    return [client, *agent, _check_known_hosts(profile.known_hosts_path or _USUAL), *key]


def _paramiko() -> Check:
    return check_package("paramiko", "ssh", name="paramiko")


def _program(*, needed: bool = False) -> Check:
    path = shutil.which("ssh")
    if path:
        return Check("ssh", "ok", path)
    why, remedy = "transport = 'openssh' needs it", "apt-get install openssh-client"
    return Check("ssh", "missing" if needed else "warning", why, remedy)


def _agent() -> Check:
    path = os.environ.get("SSH_AUTH_SOCK", "")
    if not path:
        return Check("agent", "warning", "SSH_AUTH_SOCK is not set; only key files are tried", "eval $(ssh-agent)")
    if not Path(path).is_socket():
        return Check("agent", "warning", f"SSH_AUTH_SOCK names {path}, which is not a socket", "eval $(ssh-agent)")
    return Check("agent", "ok", path)


def _check_known_hosts(path: Path) -> Check:
    path = home_folder() / path
    if path.is_file():
        return Check("known hosts", "ok", str(path))
    return Check(
        "known hosts", "warning", f"no {path}: no host is known", "connect once with ssh, or accept_new = true"
    )


def _key(path: Path) -> Check:
    """Check the private key that a profile names."""
    if not path.is_file():
        return Check("key", "missing", f"there is no {path}", "another key_path, or leave it out")
    return next(iter(_open_keys([path])), Check("key", "ok", str(path)))


def _usual_keys() -> list[Path]:
    return [path for name in ("id_ed25519", "id_ecdsa", "id_rsa") if (path := home_folder() / ".ssh" / name).is_file()]


def _open_keys(paths: list[Path]) -> list[Check]:
    """Return a warning for each private key that other users can read, which ssh refuses."""
    open_to_others = [path for path in paths if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]
    return [Check("key", "warning", f"{path} can be read by others", f"chmod 600 {path}") for path in open_to_others]
