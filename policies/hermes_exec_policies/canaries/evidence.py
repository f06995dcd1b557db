"""Records of proofs: what each proof depends on, and the store of those that held."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import read_regular, state_folder, write_private
from hermes_exec.errors import HermesError, Unsupported
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.judge import AttemptVerdict, Proof, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec_backends.sandbox import Confinement, Limits
    from hermes_exec_backends.sandbox.host import Machine
    from hermes_exec_policies.model import Policy


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """A proof with its subject."""

    policy: str
    digest: str
    """The digest of the policy."""
    place: str
    specification: str
    """The digest of the launch specification without its user ID."""
    host: Mapping[str, Any]
    proof: Proof
    seconds: float
    remembered: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict on all attempts together."""
        return self.proof.verdict

    @property
    def holds(self) -> bool:
        """Whether the proof held, so that such a sandbox may be used."""
        return self.proof.verdict is Verdict.HELD

    def refusal(self) -> Unsupported:
        """The error for a proof that did not hold."""
        rules = ", ".join(self.proof.broken_rules)
        broken = self.proof.verdict is Verdict.BROKEN
        why = f"these rules do not hold: {rules}" if broken else f"the proof is invalid: {self.proof.invalid or rules}"
        return Unsupported(
            f"{self.place}: the policy {self.policy} is refused here: {why}",
            remedy=f"hermes-exec policy prove {self.place} --policy {self.policy}, which shows each attempt",
        )

    @property
    def summary(self) -> dict[str, Any]:
        """The target, the mechanisms and the attempts as JSON values."""
        return {"place": self.place, **self.proof.facts()}

    def facts(self) -> dict[str, Any]:
        """The record as JSON values."""
        return {**asdict(replace(self, proof=Proof(()))), "proof": self.proof.facts()}


@lru_cache(maxsize=32)
def specification_digest(specification: Confinement) -> str:
    """The digest of a specification without its user ID, which differs each time."""
    return replace(specification, uid=None, gid=None).digest


def proof_key(
    policy: Policy,
    specification: Confinement,
    limits: Limits,
    host: Machine,
    place: str = "",
    enforcers: str = "",
    *,
    watched: bool = False,
) -> str:
    """The key of everything that a proof depends on; a change of any part requires a new proof."""
    parts = {
        "place": place,
        "enforcers": enforcers,
        "host": host.facts(),
        "policy": policy.digest,
        "specification": specification_digest(specification),
        "user": specification.uid is not None,
        "limits": asdict(limits),
        "watched": watched,
        "suite": _suite(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@cache
def _suite() -> str:
    """The digest of the attempts and their expected outcomes."""
    ours = files("hermes_exec_policies") / "canaries"
    texts = [(ours / f"{name}.py").read_text(encoding="utf-8") for name in ("expected", "judge")]
    return hashlib.sha256("".join((program.suite_text(), *texts)).encode()).hexdigest()


def _file(name: str) -> Path:
    return state_folder(os.environ) / "proofs" / f"{name}.json"


def save_proof(name: str, evidence: ProofRecord) -> None:
    """Store a proof that held."""
    write_private(_file(name), json.dumps(evidence.facts(), indent=1).encode() + b"\n")


def delete_proof(name: str) -> None:
    """Delete the stored proof that a policy no longer has."""
    _file(name).unlink(missing_ok=True)


def load_proof(name: str) -> ProofRecord | None:
    """Load a stored proof; None if there is none, or its record is malformed."""
    try:
        seen = _file(name).lstat()
    except OSError:
        return None
    return _read(name, seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size)


@lru_cache(maxsize=32)
def _read(name: str, *_file_as_it_is: int) -> ProofRecord | None:
    try:
        facts: dict[str, Any] = json.loads(read_regular(_file(name)))
        attempts: list[dict[str, Any]] = facts.pop("proof")["attempts"]
        proof = Proof(tuple(AttemptVerdict(**{**each, "verdict": Verdict(each["verdict"])}) for each in attempts))
        facts |= {"proof": proof, "remembered": True}
        found = ProofRecord(**facts)
    except (HermesError, OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.holds else None
