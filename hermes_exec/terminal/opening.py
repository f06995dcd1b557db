"""Open a target: from its name or profile to a Terminal."""

from __future__ import annotations

import errno
import logging
import math
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hermes_exec._async import awaitable_context_manager
from hermes_exec.config.paths import home_folder
from hermes_exec.config.plan import Plan
from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec.terminal.encoding import (
    encode,
    encode_env,
    validate_choice,
    validate_count,
    validate_flag,
    validate_seconds,
)
from hermes_exec.terminal.output import OutputCollector, SpoolFolder
from hermes_exec.terminal.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.backend import Backend
    from hermes_exec.config.profile import Profile
    from hermes_exec.observe.audit import Audit
    from hermes_exec.transport import Transport
    from hermes_exec.transport.link import Link

_log = logging.getLogger("hermes_exec.place")


@awaitable_context_manager
async def open(
    target: str | Profile | Backend | None = None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int | None = None,
    lease_s: float | str | None = None,
    carrier: Literal["auto", "guest", "plain"] | None = None,
    audit: bool | None = None,
) -> Terminal:
    """Open a target: ``async with hermes_exec.open("local") as terminal``.

    Args:
        target: a profile's name, a one-line target such as ``docker:python:3.11``, a Profile object, a Backend
            (with the ``cwd``, ``env``, ``secrets`` and ``setup`` of the profile that it was created from), or None
            for the configured default.
        cwd: the working directory of commands, which must exist.
        env: variables for every command.
        max_output: bytes of each stream that results keep; 8 MiB by default.
        lease_s: seconds, or text such as ``10m``, that the target keeps running after this process disappeared;
            900 by default.
        carrier: the transport. ``guest`` needs a Python in the target, ``plain`` only a shell and has fewer guarantees
            (docs/promises.md); ``auto`` chooses the better available one. As configured by default.
        audit: whether commands are recorded in the audit; as configured by default.

    Raises:
        UsageError: an argument is wrong, ``cwd`` does not exist, or a Backend cannot apply a key of its profile.
        ConfigError: the target or the configuration is wrong.
        PlaceUnavailable: the target could not be opened; nothing is left behind.
    """
    if audit is not None:
        validate_flag(audit, "audit")
    plan = plan_open(target, cwd=cwd, env=env, max_output=max_output, lease_s=lease_s, carrier=carrier)
    return await open_plan(plan, plan.create_audit(wanted=audit))


def plan_open(
    target: str | Profile | Backend | None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int | None = None,
    lease_s: float | str | None = None,
    carrier: str | None = None,
    place: str | None = None,
) -> Plan:
    """Return the plan for the arguments of ``open`` and the configuration; nothing outside the process is changed.

    ``place`` names what a dead process created: it is reopened, and this process becomes its owner.
    """
    plan = Plan(target, place=place, adopt=True)
    if cwd is not None:
        plan.cwd = os.fsdecode(encode(cwd, "cwd"))
    encode_env(env or {})
    plan.env.update(env or {})
    if carrier is not None:
        plan.carrier = validate_choice(carrier, "carrier", ("auto", "guest", "plain"))
    if lease_s is not None:
        plan.lease_s = validate_seconds(lease_s, "lease_s", math.inf)
    if max_output is not None:
        plan.max_output = validate_count(max_output, "max_output")
    return plan


async def open_plan(plan: Plan, audit: Audit | None) -> Terminal:
    """Open the target of a plan; see ``open``."""
    return create_terminal(plan, await open_transport(plan), audit)


async def open_transport(plan: Plan) -> Transport:
    """Open the target of a plan, and the transport to it.

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
    try:
        await _check_folder(carrier, plan)
    except BaseException:
        await carrier.close()
        await plan.backend.close()
        raise
    if _log.isEnabledFor(logging.INFO):
        _log.info("opened", extra={**_facts(carrier, plan), "took_s": round(time.monotonic() - since, 3)})
    return carrier


async def _check_folder(transport: Transport, plan: Plan) -> None:
    """Raise UsageError if the working directory does not exist; costs a round trip except on this machine."""
    if plan.cwd is None:
        return
    if plan.backend.type == "local":
        folder = os.path.join(encode(plan.env.get("HOME") or home_folder()), encode(plan.cwd))  # noqa: PTH118  bytes
        if os.path.isdir(folder):  # noqa: ASYNC240, PTH112  bytes; a thread takes longer
            return
        is_other, where = os.path.lexists(folder), ""  # noqa: ASYNC240  the same
    else:
        answer = await transport.start("exec", {"argv": [b"true"]}, OutputCollector(0, SpoolFolder())).result()
        if answer.get("error") != "cwd":
            return
        is_other, where = answer.get("errno") == errno.ENOTDIR, f" in {plan.target}"
    what = f"not a folder{where}" if is_other else f"no such folder{where}"
    raise UsageError(f"cwd: {plan.cwd}: {what}", remedy="create it, or pass another cwd")


def create_terminal(plan: Plan, carrier: Transport, audit: Audit | None) -> Terminal:
    """Return a Terminal for an open transport."""
    return Terminal(
        plan.backend,
        carrier,
        target=plan.target,
        session=plan.session,
        max_output=plan.max_output,
        timeout_s=plan.timeout_s,
        job_lease_s=plan.job_lease_s,
        audit=audit,
        clean=plan.redact,
        hooks=plan.create_hooks(),
    )


def _facts(carrier: Transport, plan: Plan) -> dict[str, object]:
    """Return the facts about an opened target that the log shows."""
    facts: dict[str, object] = {"target": plan.target, "carrier": carrier.capabilities.carrier}
    if carrier.link is not None:
        identity = carrier.link.identity
        facts.update((name, identity.get(name)) for name in ("interpreter", "python", "host", "folder"))
        facts["lease_s"] = plan.lease_s
    return facts


def create_guest_transport(backend: Backend, link: Link) -> Transport:
    """Return the transport of an open link."""
    from hermes_exec.transport.link import GuestTransport

    return GuestTransport(link, backend.traits.features, reconnect=backend.traits.reattaches)


async def _carrier(backend: Backend, plan: Plan) -> Transport:
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.migration import MigratingLink

    why_no_guest = ""
    if plan.carrier != "plain":
        kind = MigratingLink if backend.traits.migrates else Link
        link = kind(backend, env=plan.env, cwd=plan.cwd, lease_s=plan.lease_s, python=plan.python)
        try:
            await link.open()
        except PlaceUnavailable as error:
            if plan.carrier == "guest":
                raise
            why_no_guest = f"{error.what}; "
            _log.info("no guest; trying the transport without one", extra={"target": plan.target, "why": error.what})
        else:
            return create_guest_transport(backend, link)
    from hermes_exec.transport.shell import ShellTransport

    try:
        return await ShellTransport.open(backend, env=plan.env, cwd=plan.cwd)
    except PlaceUnavailable as error:
        raise PlaceUnavailable(why_no_guest + error.what, remedy=error.remedy) from error
