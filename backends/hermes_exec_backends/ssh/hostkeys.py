"""Verification of host keys. A changed key is never accepted, regardless of the configuration."""

from __future__ import annotations

import copy
import logging
import os
import shlex
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.ssh import hostcerts, known_hosts

if TYPE_CHECKING:
    from pathlib import Path

    import paramiko

    from hermes_exec_backends.ssh.host import Host

_log = logging.getLogger("hermes_exec.ssh")


def list_known_types(host: Host) -> list[str]:
    """Return the types of the host's known keys, to request one of those."""
    return list(dict.fromkeys(key.get_name() for _, _, key in _read_known_keys(host)))


def wants_certificate(host: Host) -> bool:
    """Return whether the host can be verified only by a certificate, or best by one."""
    return bool(hostcerts.authorities(host))


def check(host: Host, shown: paramiko.PKey) -> None:
    """Compare the host's key with the known ones.

    Raises:
        PlaceUnavailable: the key differs, is revoked, or none is known; no data was sent.
    """
    key = _key_alone(shown)
    known = _read_known_keys(host)
    if known_hosts.is_revoked(host, key.get_base64()):
        raise PlaceUnavailable(f"ssh: the key of {host.known_as} ({fingerprint(key)}) is marked as revoked")
    if any(each.asbytes() == key.asbytes() for _, _, each in known):
        return
    if shown.public_blob is not None:
        why = hostcerts.complaint(host, shown)
        if not why:
            return
        _log.info("the certificate of %s proves nothing: %s", host.known_as, why)
    if known:
        path, number, other = known[0]
        raise PlaceUnavailable(
            f"ssh: {host.known_as} shows another key ({fingerprint(key)}) than the one in {path} line {number} "
            f"({fingerprint(other)}): another machine may intercept the connection, or the host was installed again",
            remedy=f"ask its administrator for the fingerprint; only if it is the new one: "
            f"ssh-keygen -R {shlex.quote(host.known_as)} -f {shlex.quote(str(path))}",
        )
    if not host.accept_new:
        raise PlaceUnavailable(
            f"ssh: {host.known_as} is not known here (its key is {fingerprint(key)})",
            remedy="compare the fingerprint and connect once with ssh, or say accept_new = true",
        )
    _remember(host, key)


def _key_alone(shown: paramiko.PKey) -> paramiko.PKey:
    """Return the host's key without its certificate."""
    if shown.public_blob is None:
        return shown
    alone = copy.copy(shown)
    alone.public_blob = None
    return alone


def fingerprint(key: paramiko.PKey) -> str:
    """Return the fingerprint in the format of ssh."""
    return f"{key.get_name().removeprefix('ssh-').upper()} {key.fingerprint}"


def _read_known_keys(host: Host) -> list[tuple[Path, int, paramiko.PKey]]:
    from paramiko.hostkeys import HostKeyEntry, HostKeys, InvalidHostKey

    found: list[tuple[Path, int, paramiko.PKey]] = []
    for path, number, line in known_hosts.lines(host):
        if line.startswith("@"):
            continue
        try:
            entry = HostKeyEntry.from_line(line, number)
        except InvalidHostKey:
            continue  # as ssh does: an invalid line is ignored
        if entry is None:
            continue
        one = HostKeys()
        for name in entry.hostnames:
            one.add(name, entry.key.get_name(), entry.key)
        if one.lookup(host.known_as) is not None:
            found.append((path, number, entry.key))
    return found


def _remember(host: Host, key: paramiko.PKey) -> None:
    path = host.known_hosts[0]
    row = f"{host.known_as} {key.get_name()} {key.get_base64()}\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                row = row if file.read(1) == b"\n" else f"\n{row}"
            file.write(row.encode())
    except OSError as error:
        raise PlaceUnavailable(f"ssh: the new host's key cannot be written to {path}: {error.strerror}") from error
    _log.warning(
        "%s is new; its key %s was accepted without verification and added to %s", host.known_as, fingerprint(key), path
    )
