"""Prove a policy on this machine: make its attempts in probe sandboxes, judge them, and store the proof.

A proof applies to one launch specification on one boot of one machine. Only a proof that held is stored, and any change
of what it depends on requires a new one.
"""

from __future__ import annotations

import functools
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec._async import gather_or_cancel
from hermes_exec_backends.sandbox import Limits
from hermes_exec_backends.sandbox.host import Machine, this_machine
from hermes_exec_backends.sandbox.observe import ObservedCall, WatchSpec
from hermes_exec_backends.sandbox.ready import NotAsSpecified
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.decoys import plant_decoys
from hermes_exec_policies.canaries.deviations import find_deviations
from hermes_exec_policies.canaries.evidence import (
    ProofRecord,
    delete_proof,
    load_proof,
    proof_key,
    save_proof,
    specification_digest,
)
from hermes_exec_policies.canaries.expected import CONTROL_ATTEMPTS, NEEDS_PROC, canaries_of
from hermes_exec_policies.canaries.judge import AttemptVerdict, Proof, Verdict, judge
from hermes_exec_policies.confinement import LANDLOCK_VARIABLE, build_confinement
from hermes_exec_policies.egress import bind_proxy, open_egress
from hermes_exec_policies.explain import explain_policy
from hermes_exec_policies.folders import shared_paths
from hermes_exec_policies.start_program import LOCAL, SandboxTarget, fingerprint_enforcers, parse_sandbox_target, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_policies.canaries.expected import Canary
    from hermes_exec_policies.model import Policy

_PYTHON = "/usr/bin/python3"
_SUITE_S = 300.0
_CLOCK_S = 0.5
_HOLD_S = 30.0
"""Seconds that an attempt holds excess resources, so that the watchdog notices even on a busy machine."""
_OUTPUT = 1 << 20
_MEMORY = 96 << 20
_PROCESSES = 16
"""Low limits of the probe sandboxes that try to exceed them, to prove the enforcement quickly."""
_ENDED_BY = {
    "limits-memory": "memory",
    "limits-processes": "processes",
    "limits-time": "wall",
    "limits-output": "output",
}
"""The limit that ends a probe sandbox, if nothing is refused in it before."""


def _keep_nothing(_: ObservedCall) -> bool:
    return False


_WATCH = WatchSpec(frozenset({"execve"}), _keep_nothing, linger_s=0)
"""Observes refused calls, but few allowed ones: observing thousands of created files is slow."""


async def prove(
    policy: Policy, place: SandboxTarget = LOCAL, *, again: bool = False, watched: bool = False
) -> ProofRecord:
    """Prove that a policy holds in a target on this machine.

    Args:
        policy: the policy to prove.
        place: the target.
        again: make the attempts even if a stored proof exists.
        watched: observe the system calls in the probe sandboxes, as the gate does.

    Raises:
        Unsupported: a rule does not hold, or the proof is invalid; names the rules. No sandbox may be used.
        PlaceUnavailable: no sandbox can be created.
    """
    evidence = await gather_evidence(place, policy, again=again, watched=watched)
    if not evidence.holds:
        raise evidence.refusal()
    return evidence


async def gather_evidence(
    place: SandboxTarget | str, policy: Policy, *, again: bool = False, watched: bool = False
) -> ProofRecord:
    """Like ``prove``, but return the record even if the proof did not hold.

    Raises:
        ConfigError: ``place`` is an invalid target.
        Unsupported: no attempts can be made in that target, or a required rule cannot be enforced here.
        PlaceUnavailable: no sandbox can be created.
    """
    where = parse_sandbox_target(place) if isinstance(place, str) else place
    host = this_machine()
    specification, limits = build_confinement(policy, host, place=where.kind, started=False)
    name = proof_key(
        policy,
        specification,
        limits,
        host,
        str(where),
        await fingerprint_enforcers(where, specification.apparmor),
        watched=watched,
    )
    if not again and (found := load_proof(name)) is not None:
        return found
    specification, _ = build_confinement(policy, host, place=where.kind)
    began = time.monotonic()
    proof = await run_attempts(policy, specification, host, where, _WATCH if watched else None)
    seconds = time.monotonic() - began
    evidence = ProofRecord(
        policy.name, policy.digest, str(where), specification_digest(specification), host.facts(), proof, seconds
    )
    if evidence.holds:
        save_proof(name, evidence)
    else:
        delete_proof(name)
    return evidence


async def run_attempts(
    policy: Policy,
    specification: Confinement,
    host: Machine,
    place: SandboxTarget = LOCAL,
    watch: WatchSpec | None = None,
) -> Proof:
    """Make the attempts against all enforced rules of the policy, in probe sandboxes like ``specification``."""
    known = replace(
        host, versions={"docker engine": "", **host.versions}
    )  # an engine has answered already, if it is used
    enforced = {verdict.rule for verdict in explain_policy(policy, place.kind, known) if verdict.held_by}
    canaries = [
        each
        for each in canaries_of(policy, place.kind, proc=specification.proc)
        if each.rule in enforced
        and host.landlock_abi >= each.abi
        and (specification.proc or each.name not in NEEDS_PROC)
    ]
    sets = [[each for each in canaries if not each.alone], *([each] for each in canaries if each.alone)]
    async with AsyncExitStack() as stack:
        outside = stack.enter_context(plant_decoys())
        if policy.network.access == "hosts":
            specification = bind_proxy(
                specification, await stack.enter_async_context(open_egress(policy.network.hosts))
            )
        probes = [_probe(policy, specification, each, outside, _limits_of(each, policy), place, watch) for each in sets]
        proofs = await gather_or_cancel(probes)
    return functools.reduce(Proof.join, proofs)


def _limits_of(canaries: Sequence[Canary], policy: Policy) -> Limits:
    """The limits of a probe sandbox; one that tries to exceed a limit has a low one."""
    usual = Limits(wall_s=_SUITE_S, output=_OUTPUT, memory=policy.limits.memory, processes=policy.limits.processes)
    match [canary.name for canary in canaries]:
        case ["limits-time"]:
            return replace(usual, wall_s=_CLOCK_S)
        case ["limits-memory"]:
            return replace(usual, memory=min(policy.limits.memory or _MEMORY, _MEMORY))
        case ["limits-processes"]:
            return replace(usual, processes=min(policy.limits.processes or _PROCESSES, _PROCESSES))
        case _:
            return usual


async def _probe(
    policy: Policy,
    specification: Confinement,
    canaries: Sequence[Canary],
    outside: Mapping[str, object],
    limits: Limits,
    place: SandboxTarget,
    watch: WatchSpec | None,
) -> Proof:
    """Make attempts in one probe sandbox, and judge its report."""
    nonce = secrets.token_hex(8)
    names = [*CONTROL_ATTEMPTS, *(each.name for each in canaries)]
    configuration = _configuration(policy, specification, outside, limits) | {"nonce": nonce, "attempts": names}
    argv = program.suite_argv(_PYTHON, configuration)
    try:
        async with await start(place, specification, argv, limits=limits, watch=watch) as run:
            deviations = _deviation_proof(find_deviations(policy, specification, run.facts))
            run.go()
            ended = await run.wait()
    except NotAsSpecified as error:
        return _deviation_proof(error.differences)
    if len(canaries) == 1 and ended.limit and ended.limit == _ENDED_BY.get(canaries[0].name):
        (canary,) = canaries
        held = AttemptVerdict(
            canary.name, canary.rule, canary.layer, Verdict.HELD, f"ended from outside: {ended.limit}"
        )
        return deviations.join(Proof((held,)))
    proof = judge(ended.stdout, canaries, nonce)
    if ended.limit:
        slow = f"too slow: the attempts did not end within {limits.wall_s:g} s"
        cut = slow if ended.limit == "wall" else f"ended by a limit that is not tested there: {ended.limit}"
        proof = replace(proof, invalid=f"{cut}; {proof.invalid}")
    elif proof.invalid and ended.stderr:
        last = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        proof = replace(proof, invalid=": ".join([proof.invalid, *last]))
    return deviations.join(proof)


def _deviation_proof(differences: Iterable[str]) -> Proof:
    """A proof that the deviations found from outside break their rules."""
    return Proof(
        tuple(
            AttemptVerdict("seen from outside", each.partition(":")[0], "", Verdict.BROKEN, each)
            for each in differences
        )
    )


def _configuration(
    policy: Policy, specification: Confinement, outside: Mapping[str, object], limits: Limits
) -> dict[str, object]:
    bounds = {name: value for name, value in policy.limits.model_dump().items() if value is not None}
    bounds |= {"memory": limits.memory, "output": limits.output, "processes": limits.processes}
    there = {folder.target for folder in specification.tmpfs} | {
        bind.target for bind in specification.binds if bind.writable
    }
    return {
        "write": [path for path in policy.files.write if path in there],
        "scratch": [path for path in policy.files.scratch if path in there],
        "folders": shared_paths(policy)[0],
        "outside": outside,
        "variables": [*policy.environment.set, *policy.environment.keep, LANDLOCK_VARIABLE],
        "limits": bounds,
        "label": specification.apparmor,
        "hold": _HOLD_S,
        "unmapped": policy.strength("limits.memory") == "required",
    }
