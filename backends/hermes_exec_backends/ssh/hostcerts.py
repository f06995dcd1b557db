"""Host certificates: whether a certificate authority of known_hosts has signed a host's key."""

from __future__ import annotations

import base64
import fnmatch
import time
from typing import TYPE_CHECKING

from hermes_exec_backends.ssh import known_hosts

if TYPE_CHECKING:
    from collections.abc import Iterable

    import paramiko
    from cryptography.hazmat.primitives.serialization import SSHCertificate

    from hermes_exec_backends.ssh.host import Host


def authorities(host: Host) -> list[str]:
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


def complaint(host: Host, key: paramiko.PKey) -> str:
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
    return _complaint(host, certificate)


def _complaint(host: Host, certificate: SSHCertificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, SSHCertificateType

    line = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    signer = line.split()[1].decode()
    principals = [name.decode("utf-8", "replace").lower() for name in certificate.valid_principals]
    if signer not in authorities(host):
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
