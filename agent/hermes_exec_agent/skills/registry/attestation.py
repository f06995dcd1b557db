"""The evidence for a version as a signed in-toto statement, which a stranger can verify offline.

The statement's subject is every file of the skill with its SHA-256. The predicate follows SLSA's verification summary:
the verifier, the time, the policy and the result, and the whole record of the version. A DSSE envelope carries it with
an Ed25519 signature and the public key. The key shows that nothing was changed; its holder is unknown.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry.log import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from hermes_exec_agent.skills.registry.record import Version

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:hermes-exec:skill-evidence:v1"
MATCHES = "matches"


@dataclass(frozen=True, slots=True)
class Attestation:
    """A statement whose signature is valid."""

    record: Mapping[str, Any]
    """The record of the version, as `Version.facts` returns it."""
    verified: str
    """The time of the gate's verdict, in ISO 8601."""
    key: Ed25519PublicKey

    @property
    def signer(self) -> str:
        """The fingerprint of the key: the SHA-256 of its 32 bytes, in hexadecimal."""
        return fingerprint(self.key)

    @property
    def files(self) -> dict[str, tuple[int, int, str]]:
        """Mode, size and SHA-256 of each file, by path."""
        return {each["path"]: (each["mode"], each["size"], each["sha256"]) for each in self.record["files"]}


def sign_version(version: Version, key: Ed25519PrivateKey) -> bytes:
    """Return the signed statement about a version, as a DSSE envelope in JSON."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    payload = json.dumps(_build_statement(version, fingerprint(key.public_key())), sort_keys=True).encode()
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key))
    facts: dict[str, Any] = envelope.to_dict()
    public = key.public_key().public_bytes_raw().hex()
    return json.dumps({**facts, "publicKey": public}, sort_keys=True).encode()


def _build_statement(version: Version, signer: str) -> dict[str, Any]:
    from importlib.metadata import version as installed

    record = version.facts()
    record["origin"]["experience"] = None  # conversations are private
    policy = {"uri": f"urn:hermes-exec:policy:{version.policy['name']}", "digest": {"sha256": version.policy_digest}}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": each.path, "digest": {"sha256": each.sha256}} for each in version.files],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "verifier": {"id": f"urn:hermes-exec:gate:{signer}", "version": {"hermes-exec": installed("hermes-exec")}},
            "timeVerified": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(version.registered)),
            "policy": policy,
            "verificationResult": "PASSED",
            "verifiedLevels": list(version.rights),
            "record": record,
        },
    }


def read_attestation(envelope: bytes, name: str) -> Attestation:
    """Verify the signature of a statement, and return its content; ``name`` is its file, for messages.

    Raises:
        Refused: it is not a statement about a skill, its signature is invalid, or it contradicts itself.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import FormatError, VerificationError
    from securesystemslib.signer import SSlibKey

    try:
        facts: dict[str, Any] = json.loads(envelope)
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(facts["publicKey"]))
        found = Envelope.from_dict(facts)
        payload_type, payload = found.payload_type, found.payload
        found.verify([SSlibKey.from_crypto(key)], 1)
        statement = json.loads(payload)
        attestation = Attestation(statement["predicate"]["record"], statement["predicate"]["timeVerified"], key)
        subject = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
        types = (payload_type, statement["_type"], statement["predicateType"])
        listed = {path: digest for path, (_, _, digest) in attestation.files.items()}
    except VerificationError as error:
        raise Refused(f"{name}: its signature is invalid") from error
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, FormatError) as error:
        raise Refused(f"{name} is not a signed statement about a skill") from error
    if types != (PAYLOAD_TYPE, STATEMENT_TYPE, PREDICATE_TYPE) or subject != listed:
        raise Refused(f"{name} is not a statement of a form that this version knows")
    return attestation


def check_record(record: Mapping[str, Any], digest: str) -> dict[str, str]:
    """Recompute what a record claims from its own data; return `MATCHES` or the difference for each.

    Args:
        record: of an attestation.
        digest: of the files that came with it.
    """
    from hermes_exec_policies.model import digest_of_policy

    policy = digest_of_policy(cast("dict[str, Any]", record["policy"]))
    recomputed = {"files": (str(record["digest"]), digest), "policy": (str(record["policy_digest"]), policy)}
    return {
        name: MATCHES if claimed == actual else f"{claimed[:16]} is claimed, {actual[:16]} is there"
        for name, (claimed, actual) in recomputed.items()
    }
