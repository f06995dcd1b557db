"""From a target to an open Terminal."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hermes_exec._async import opens
from hermes_exec.config.plan import Plan
from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec.terminal.encoding import checked_count, checked_seconds
from hermes_exec.terminal.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.backend import Backend
    from hermes_exec.config.profile import Profile
    from hermes_exec.observe.audit import Audit
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import Carrier

_log = logging.getLogger("hermes_exec.place")


@opens
async def open(
    target: str | Profile | Backend | None = None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int | None = None,
    lease_s: float | None = None,
    carrier: Literal["auto", "guest", "plain"] | None = None,
    audit: bool | None = None,
) -> Terminal:
    """Open a place: ``async with hermes_exec.open("local") as terminal``.

    Args:
        target: a profile's name, a one-line target such as ``docker:python:3.11``, a Profile object, a Backend
            (with the ``cwd``, ``env``, ``secrets`` and ``setup`` of the profile that it is made from), or None for
            the configured default.
        cwd: the folder that commands start in.
        env: variables for every command.
        max_output: bytes of each stream that results keep; 8 MiB by default.
        lease_s: seconds that the place goes on after the orchestrator vanished; 900 by default.
        carrier: ``guest`` needs a Python in the place, ``plain`` only a shell and keeps fewer promises
            (docs/promises.md); ``auto`` takes the best that is there. As configured when left out.
        audit: whether commands are recorded in the audit; as configured when left out.

    Raises:
        UsageError: the target is of another kind, or a Backend cannot do what its profile says.
        ConfigError: the target or the configuration is wrong.
        PlaceUnavailable: the place could not be opened; nothing is left behind.
    """
    plan = plan_of(target, cwd=cwd, env=env, max_output=max_output, lease_s=lease_s, carrier=carrier)
    return await open_plan(plan, plan.audit(wanted=audit))


def plan_of(
    target: str | Profile | Backend | None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int | None = None,
    lease_s: float | None = None,
    carrier: str | None = None,
    place: str | None = None,
) -> Plan:
    """What ``open`` is asked for, on top of what the configuration says; touches nothing outside the process.

    ``place`` is that of an opened backend of a dead process: it is found again, and then ours.
    """
    plan = Plan(target, place=place, adopt=True)
    if cwd is not None:
        plan.cwd = cwd
    plan.env.update(env or {})
    if carrier not in {None, "auto", "guest", "plain"}:
        raise UsageError(f"no carrier is called {carrier!r}", remedy="auto, guest or plain")
    plan.carrier = carrier or plan.carrier
    if lease_s is not None:
        plan.lease_s = checked_seconds(lease_s, "a lease", math.inf)
    if max_output is not None:
        plan.max_output = checked_count(max_output, "max_output")
    return plan


async def open_plan(plan: Plan, audit: Audit | None) -> Terminal:
    """Open what was planned; see ``open``."""
    return terminal_of(plan, await open_carrier(plan), audit)


async def open_carrier(plan: Plan) -> Carrier:
    """Open the place and the way to it.

    Raises:
        PlaceUnavailable: it could not be opened; nothing is left behind.
    """
    _log.info("opening", extra={"target": plan.target, "type": plan.backend.type})
    since = time.monotonic()
    plan.backend.options = replace(plan.backend.options, lease_s=plan.lease_s)
    await plan.backend.open()
    try:
        carrier = await _carrier(plan.backend, plan)
    except BaseException:
        await plan.backend.close()
        raise
    if _log.isEnabledFor(logging.INFO):
        _log.info("opened", extra={**_facts(carrier, plan), "took_s": round(time.monotonic() - since, 3)})
    return carrier


def terminal_of(plan: Plan, carrier: Carrier, audit: Audit | None) -> Terminal:
    """A Terminal for a place that is open."""
    return Terminal(
        plan.backend,
        carrier,
        target=plan.target,
        session=plan.session,
        max_output=plan.max_output,
        timeout_s=plan.timeout_s,
        job_lease_s=plan.job_lease_s,
        audit=audit,
        clean=plan.clean,
    )


def _facts(carrier: Carrier, plan: Plan) -> dict[str, object]:
    """What people ask about a place that was opened."""
    facts: dict[str, object] = {"target": plan.target, "carrier": carrier.capabilities.carrier}
    if carrier.link is not None:
        identity = carrier.link.identity
        facts.update((name, identity.get(name)) for name in ("interpreter", "python", "host", "folder"))
        facts["lease_s"] = plan.lease_s
    return facts


def guest_carrier(backend: Backend, link: Link) -> Carrier:
    """The carrier of an open link."""
    from hermes_exec.transport.guest_transport import GuestCarrier

    return GuestCarrier(link, backend.traits.features, reconnect=backend.traits.reattaches)


async def _carrier(backend: Backend, plan: Plan) -> Carrier:
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.migration import MovingLink

    why_no_guest = ""
    if plan.carrier != "plain":
        kind = MovingLink if backend.traits.migrates else Link
        link = kind(backend, env=plan.env, cwd=plan.cwd, lease_s=plan.lease_s, python=plan.python)
        try:
            await link.open()
        except PlaceUnavailable as error:
            if plan.carrier == "guest":
                raise
            why_no_guest = f"{error.what}; "
            _log.info("no guest, so it is tried without one", extra={"target": plan.target, "why": error.what})
        else:
            return guest_carrier(backend, link)
    from hermes_exec.transport.shell import PlainCarrier

    try:
        return await PlainCarrier.open(backend, env=plan.env, cwd=plan.cwd)
    except PlaceUnavailable as error:
        raise PlaceUnavailable(why_no_guest + error.what, remedy=error.remedy) from error
