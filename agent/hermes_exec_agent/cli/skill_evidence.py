"""``skill verify BUNDLE``: the evidence in an exported skill as a table, verified offline."""

from __future__ import annotations

import json as jsonlib
from typing import TYPE_CHECKING, Any

from hermes_exec.cli.console import CHECK_FAILED, say
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.bundle import Bundle

_MANY = 12


def verify_bundle(path: Path, *, key: str = "", json: bool = False) -> int:
    """Verify a bundle without a registry, and print its evidence; return the exit code.

    Args:
        path: of the bundle.
        key: the beginning of the fingerprint that the signer must have; any signer, if it is empty.
        json: print JSON.

    Raises:
        Refused: it is not a bundle, its signature is invalid, its files differ, or another key signed it.
    """
    from hermes_exec_agent.skills.registry import attestation, bundle
    from hermes_exec_agent.skills.registry.content import private_folder

    with private_folder() as folder:
        found, tree = bundle.read(None, path, folder)
        checks = attestation.check_record(found.facts, tree.digest)
    if key and not found.signer.startswith(key.lower()):
        raise Refused(f"{path}: the key {found.signer[:16]} signed it, not {key}")
    wrong = [name for name, outcome in checks.items() if outcome != attestation.MATCHES]
    if json:
        show_json({"signer": found.signer, "verified": found.attestation.verified, "checks": checks,
                   "record": found.facts})  # fmt: skip
    else:
        show_table(("KEY", "VALUE"), [[name, value] for name, value in _describe(found, checks)])
    for name in wrong:
        say(f"{path}: its {name} do not match the record: {checks[name]}")
    return CHECK_FAILED if wrong else 0


def _describe(found: Bundle, checks: dict[str, str]) -> list[tuple[str, str]]:
    """Return the rows of the table; --json has everything."""
    from hermes_exec_agent.skills.registry.record import Version

    version = Version.from_facts(found.facts)
    gate: dict[str, Any] = dict(version.evidence)
    seen: dict[str, Any] = gate.get("evidence") or {}
    return [
        ("skill", f"{version.name} {version.number}: {version.summary}"),
        ("signature", f"valid, by the key {found.signer[:16]}; the holder of the key is not known"),
        ("verified", found.attestation.verified),
        ("files", f"{len(version.files)}, SHA-256 {version.digest[:16]}: {checks['files']}"),
        ("policy", f"{version.policy['name']}, SHA-256 {version.policy_digest[:16]}: {checks['policy']}"),
        ("rights", ", ".join(version.rights)),
        ("origin", version.origin.describe()),
        ("written by", " ".join(filter(None, (version.author.kind, version.author.name, version.author.model)))),
        ("kernel", version.kernel),
        ("interpreter", version.interpreter or "none ran"),
        ("packages", version.environment or "none"),
        *_describe_sandbox(gate.get("proof") or {}),
        *_describe_cases(seen),
        *describe_findings(gate.get("findings") or []),
    ]


def _describe_sandbox(proof: dict[str, Any]) -> list[tuple[str, str]]:
    """Describe the proof of the sandbox: which mechanisms contained which attempts."""
    if not proof:
        return [("sandbox", "no proof is recorded")]
    attempts: list[dict[str, Any]] = proof["attempts"]
    held = [each for each in attempts if each["verdict"] == "held"]
    rows = [("sandbox", f"{proof['place']}: {len(held)} of {len(attempts)} attempts to break out were contained")]
    for layer in proof["layers"]:
        names = [each["name"] for each in held if each["layer"] == layer]
        more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
        rows.append((f"  by {layer}", ", ".join(names[:_MANY]) + more))
    return rows


def _describe_cases(seen: dict[str, Any]) -> list[tuple[str, str]]:
    if not seen:
        return [("evidence", "none: nothing of it was run as a function")]
    rows = [
        ("evidence", describe_level(str(seen["level"]))),
        ("its own tests", f"{seen['tests']}, which noticed {seen['killed']} of {seen['mutants']} mutants"),
    ]
    held: list[dict[str, Any]] = list(seen.get("held") or ())
    for number, case in enumerate(held[:_MANY], 1):
        source = case.get("source", "unknown")
        rows.append((f"  case {number}", f"{source}: {jsonlib.dumps(case, sort_keys=True)[:120]}"))
    return rows


def describe_level(level: str) -> str:
    """Return a level of evidence with what it confirms."""
    if level in {"person", "separate"}:
        return f"{level}: the results of its cases are confirmed, and no others"
    return f"{level}: its own tests, or cases that do not need all of the function"


def describe_findings(findings: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return rows about the findings of the gate."""
    if not findings:
        return [("findings", "none")]
    rows = [("findings", f"{len(findings)}, none of which refused it")]
    for each in findings[:_MANY]:
        where = f"{each['path']}:{each['line']}" if each.get("line") else str(each.get("path", ""))
        rows.append((f"  {each['code']}", f"{where} {each['operator']}".strip()[:160]))
    return rows
