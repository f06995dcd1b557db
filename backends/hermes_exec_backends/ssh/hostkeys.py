"""Verification of host keys. A changed key is never accepted, regardless of the configuration."""

from __future__ import annotations

import base64
import copy
import fnmatch
import logging
import os
import shlex
import time
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.ssh import known_hosts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import paramiko
    from cryptography.hazmat.primitives.serialization import SSHCertificate

    from hermes_exec_backends.ssh.host import Host


_log = logging.getLogger("hermes_exec.ssh")


def list_known_types(host: Host) -> list[str]:
    """Return the types of the host's known keys, to request one of those."""
    return list(dict.fromkeys(key.get_name() for _, _, key in _read_known_keys(host)))


def wants_certificate(host: Host) -> bool:
    """Return whether the host can be verified only by a certificate, or best by one."""
    return bool(list_authorities(host))


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
        why = find_certificate_problem(host, shown)
        if not why:
            return
        _log.info("the certificate of %s proves nothing: %s", host.known_as, why)
    if known:
        path, number, other = known[0]
        raise PlaceUnavailable(
            f"ssh: {host.known_as} presents another key ({fingerprint(key)}) than the one in {path} line {number} "
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


def list_authorities(host: Host) -> list[str]:
    """Return the keys, in base64, of the ``@cert-authority`` lines that name the host."""
    found: list[str] = []
    for _, _, line in known_hosts.lines(host):
        mark, _, rest = line.partition(" ")
        words = rest.split()
        if mark == "@cert-authority" and len(words) > 2 and _names(words[0].split(","), host):
            found.append(words[2])
    return found


def _names(patterns: Iterable[str], host: Host) -> bool:
    """Return whether a list of patterns matches the host; a matching one with ``!`` excludes it (sshd(8))."""
    named = False
    for pattern in patterns:
        fits = any(
            fnmatch.fnmatchcase(name, _plain(pattern.removeprefix("!"))) for name in {host.known_as, _bare(host)}
        )
        if fits and pattern.startswith("!"):
            return False
        named = named or fits
    return named


def _plain(pattern: str) -> str:
    return pattern.replace("[", "[[]").lower()  # of a shell's patterns ssh supports only * and ?


def _bare(host: Host) -> str:
    """Return the host's name without a port, as in certificates."""
    name = host.known_as
    return (name[1:].rpartition("]")[0] if name.startswith("[") else name).lower()


def find_certificate_problem(host: Host, key: paramiko.PKey) -> str:
    """Return the reason to reject the host's certificate; empty if it is valid."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import SSHCertificate, load_ssh_public_identity

    blob = key.public_blob
    if blob is None:
        return "it shows none"
    try:
        certificate = load_ssh_public_identity(blob.key_type.encode() + b" " + base64.b64encode(blob.key_blob))
        if not isinstance(certificate, SSHCertificate):
            return "it shows none"
        certificate.verify_cert_signature()
    except (ValueError, InvalidSignature) as error:
        return f"it is malformed or its signature is wrong ({str(error) or 'signature'})"
    return _find_problem(host, certificate)


def _find_problem(host: Host, certificate: SSHCertificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, SSHCertificateType

    line = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    signer = line.split()[1].decode()
    principals = [name.decode("utf-8", "replace").lower() for name in certificate.valid_principals]
    if signer not in list_authorities(host):
        return "no authority that known_hosts lists for the host has signed it"
    if known_hosts.is_revoked(host, signer):
        return "its signer's key is marked as revoked"
    if certificate.type is not SSHCertificateType.HOST:
        return "it is not a host's"
    if not any(fnmatch.fnmatchcase(_bare(host), _plain(name)) for name in principals):
        return f"it is for {', '.join(principals) or 'no host'}"
    if not certificate.valid_after <= time.time() < certificate.valid_before:
        return "it is not valid now"
    if certificate.critical_options:
        return "it has conditions that are not known here"
    return ""
