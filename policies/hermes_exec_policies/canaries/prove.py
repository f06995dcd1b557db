"""Prove a policy on this machine: make its attempts in twins of a sandbox, judge them, and remember what was shown.

A proof is of one launch specification on one boot of one machine. Only a proof that held is remembered, and it is made
again when anything changed that it rests on.
"""

from __future__ import annotations

import functools
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec._async import together
from hermes_exec_backends.sandbox import Limits
from hermes_exec_backends.sandbox.host import Host, this_host
from hermes_exec_backends.sandbox.observe import Act, Watch
from hermes_exec_backends.sandbox.ready import NotAsSpecified
from hermes_exec_policies.canaries import program
from hermes_exec_policies.canaries.decoys import planted
from hermes_exec_policies.canaries.deviations import amiss
from hermes_exec_policies.canaries.evidence import Evidence, digest, forget, key, remember, remembered
from hermes_exec_policies.canaries.expected import CONTROLS, NEED_PROC, canaries_of
from hermes_exec_policies.canaries.judge import Judged, Proof, Verdict, judge
from hermes_exec_policies.confinement import LANDLOCKED, confined
from hermes_exec_policies.egress import egress, with_net
from hermes_exec_policies.explain import explain
from hermes_exec_policies.folders import seen_in
from hermes_exec_policies.start_program import LOCAL, Place, enforcers, place_of, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hermes_exec_backends.sandbox import Confinement
    from hermes_exec_policies.canaries.expected import Canary
    from hermes_exec_policies.model import Policy

_PYTHON = "/usr/bin/python3"
_SUITE_S = 300.0
_CLOCK_S = 0.5
_HOLD_S = 30.0
"""How long too much is held on to, so that who looks from outside sees it, however busy the machine is."""
_OUTPUT = 1 << 20
_MEMORY = 96 << 20
_PROCESSES = 16
"""What twins are given that try to have more: it is the enforcement that is proven, and quickly so."""
_ENDED_BY = {
    "limits-memory": "memory",
    "limits-processes": "processes",
    "limits-time": "wall",
    "limits-output": "output",
}
"""The limit that ends a twin, where nothing in it is refused before that."""


def _keep_nothing(_: Act) -> bool:
    return False


_WATCH = Watch(frozenset({"execve"}), _keep_nothing, linger_s=0)
"""Every refusal goes through us then; thousands of files that are made would only take longer."""


async def prove(policy: Policy, place: Place = LOCAL, *, again: bool = False, watched: bool = False) -> Evidence:
    """Show that a policy holds in a place of this machine.

    Args:
        policy: what has to hold.
        place: where.
        again: make the attempts though they are remembered.
        watched: make them in sandboxes whose calls are answered from outside, as a skill's are while it is checked.

    Raises:
        Unsupported: a rule does not hold, or the attempts prove nothing; names the rules. No sandbox may be used.
        PlaceUnavailable: no sandbox can be made.
    """
    evidence = await evidence_of(place, policy, again=again, watched=watched)
    if not evidence.holds:
        raise evidence.refusal()
    return evidence


async def evidence_of(place: Place | str, policy: Policy, *, again: bool = False, watched: bool = False) -> Evidence:
    """The same, whatever comes of it.

    Raises:
        ConfigError: ``place`` is text, and no target.
        Unsupported: no attempts can be made in such places, or a required rule cannot be enforced here.
        PlaceUnavailable: no sandbox can be made.
    """
    where = place_of(place) if isinstance(place, str) else place
    host = this_host()
    specification, limits = confined(policy, host, place=where.kind, started=False)
    name = key(
        policy, specification, limits, host, str(where), await enforcers(where, specification.apparmor), watched=watched
    )
    if not again and (found := remembered(name)) is not None:
        return found
    specification, _ = confined(policy, host, place=where.kind)
    began = time.monotonic()
    proof = await attempts(policy, specification, host, where, _WATCH if watched else None)
    seconds = time.monotonic() - began
    evidence = Evidence(policy.name, policy.digest, str(where), digest(specification), host.facts(), proof, seconds)
    if evidence.holds:
        remember(name, evidence)
    else:
        forget(name)
    return evidence


async def attempts(
    policy: Policy, specification: Confinement, host: Host, place: Place = LOCAL, watch: Watch | None = None
) -> Proof:
    """Make every attempt that the policy forbids and that something here is to stop, in twins of ``specification``."""
    known = replace(host, versions={"docker engine": "", **host.versions})  # the one that answered, if it is one
    enforced = {verdict.rule for verdict in explain(policy, place.kind, known) if verdict.held_by}
    canaries = [
        each
        for each in canaries_of(policy, place.kind, proc=specification.proc)
        if each.rule in enforced
        and host.landlock_abi >= each.abi
        and (specification.proc or each.name not in NEED_PROC)
    ]
    sets = [[each for each in canaries if not each.alone], *([each] for each in canaries if each.alone)]
    async with AsyncExitStack() as stack:
        outside = stack.enter_context(planted())
        if policy.network.access == "hosts":
            specification = with_net(specification, await stack.enter_async_context(egress(policy.network.hosts)))
        twins = [_probe(policy, specification, each, outside, _limits_of(each, policy), place, watch) for each in sets]
        proofs = await together(twins)
    return functools.reduce(Proof.joined, proofs)


def _limits_of(canaries: Sequence[Canary], policy: Policy) -> Limits:
    """Those of a twin; one that tries to exceed a limit has a low one."""
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
    place: Place,
    watch: Watch | None,
) -> Proof:
    """Make some attempts in one sandbox that is specified like the real one, and judge what it reported."""
    nonce = secrets.token_hex(8)
    names = [*CONTROLS, *(each.name for each in canaries)]
    configuration = _configuration(policy, specification, outside, limits) | {"nonce": nonce, "attempts": names}
    words = program.argv(_PYTHON, configuration)
    try:
        async with await start(place, specification, words, limits=limits, watch=watch) as run:
            looked = _deviation_proof(amiss(policy, specification, run.facts))
            run.go()
            ended = await run.wait()
    except NotAsSpecified as error:
        return _deviation_proof(error.differences)
    if len(canaries) == 1 and ended.limit and ended.limit == _ENDED_BY.get(canaries[0].name):
        (canary,) = canaries
        held = Judged(canary.name, canary.rule, canary.layer, Verdict.HELD, f"ended from outside: {ended.limit}")
        return looked.joined(Proof((held,)))
    proof = judge(ended.stdout, canaries, nonce)
    if ended.limit:
        slow = f"too slow: the attempts did not end within {limits.wall_s:g} s"
        cut = slow if ended.limit == "wall" else f"ended by a limit that is not tried there: {ended.limit}"
        proof = replace(proof, invalid=f"{cut}; {proof.invalid}")
    elif proof.invalid and ended.stderr:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        proof = replace(proof, invalid=": ".join([proof.invalid, *said]))
    return looked.joined(proof)


def _deviation_proof(differences: Iterable[str]) -> Proof:
    """What the look from outside shows."""
    return Proof(
        tuple(Judged("seen from outside", each.partition(":")[0], "", Verdict.BROKEN, each) for each in differences)
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
        "folders": seen_in(policy)[0],
        "outside": outside,
        "variables": [*policy.environment.set, *policy.environment.keep, LANDLOCKED],
        "limits": bounds,
        "label": specification.apparmor,
        "hold": _HOLD_S,
        "unmapped": policy.strength("limits.memory") == "required",
    }
