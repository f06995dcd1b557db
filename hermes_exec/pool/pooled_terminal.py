"""One terminal of a pool, from its opening to its end: its journal entry, health checks and reset."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, cast

from hermes_exec.backend import release
from hermes_exec.errors import HermesError, PlaceError, ProtocolError, UsageError
from hermes_exec.guest.core import wire
from hermes_exec.pool.journal import JournalEntry, run_in_thread
from hermes_exec.terminal import opening
from hermes_exec.terminal.guest_records import GuestRecord
from hermes_exec.transport.call import LeaseExpired
from hermes_exec.transport.link import Link

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec.config.plan import Plan
    from hermes_exec.pool.journal import Journal
    from hermes_exec.pool.options import Pool
    from hermes_exec.terminal.requests import TerminalContext
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.transport import Transport

_log = logging.getLogger("hermes_exec.pool")


class Health(Enum):
    """The result of a health check."""

    HEALTHY = "well"
    UNHEALTHY = "ill"
    UNKNOWN = "unsure"
    """The connection is broken and being restored, or the holder of the lease has suspended it."""


class PooledTerminal:
    """An open target, and the Terminal of its current lease. Created by ``open`` or ``adopt``."""

    def __init__(self, pool: Pool, plan: Plan, carrier: Transport, journal: Journal, entry: JournalEntry) -> None:
        self.pool = pool
        self.terminal: Terminal = opening.create_terminal(plan, carrier, plan.create_audit(wanted=pool.audit))
        self.entry = entry
        self._plan = plan
        self._carrier = carrier
        self._journal = journal
        self._writing = asyncio.Lock()
        self._over = False
        self._revoked = False
        self._closed_by_holder = False
        self._answers = True

    @classmethod
    async def open(cls, profile: str, pool: Pool, journal: Journal) -> PooledTerminal:
        """Open a new target, and record it.

        Raises:
            HermesError: it cannot be opened; nothing is left behind.
        """
        plan = await plan_terminal(pool)
        before = plan.backend.target
        carrier = await opening.open_transport(plan)
        # A backend object has no text that opens it again, so a target that it created is identified by its name.
        named = callable(pool.target) and plan.backend.target != before
        target = plan.backend.target if named else plan.target
        member = cls(pool, plan, carrier, journal, JournalEntry(secrets.token_hex(8), profile, "", target))
        try:
            await member.record()
        except BaseException:
            await member.close()
            raise
        return member

    @classmethod
    async def adopt(cls, pool: Pool, plan: Plan, link: Link, journal: Journal, entry: JournalEntry) -> PooledTerminal:
        """Take over the target of a dead orchestrator, over a new link to its guest."""
        member = cls(pool, plan, opening.create_guest_transport(plan.backend, link), journal, entry)
        await member.record(key=entry.key)
        return member

    @property
    def ready(self) -> bool:
        """Whether it can be leased, as far as is known without asking the target."""
        return self._carrier.link is None or self._carrier.link.connected

    def revoke(self) -> None:
        """Disconnect the current Terminal, so that its holder can no longer reach the target. Safe to call twice."""
        if not self._revoked:
            self._revoked = True
            self._closed_by_holder = self._context.closed
            self._context.closed = True

    async def record(self, *, key: str = "", durable: bool = True) -> None:
        """Record how to attach to it again, and the key that it is leased to. For ``durable`` see `write_private`.

        Raises:
            PlaceError: the journal cannot be written.
        """
        link = self._carrier.link
        try:
            guest = None if link is None else GuestRecord.from_identity(self.entry.target, link.identity)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the guest's description of itself is invalid: {error}") from error
        client = "" if link is None else link.client.hex()
        async with self._writing:
            if self._over:
                return
            self.entry = replace(self.entry, key=key, guest=guest, client=client)
            try:
                await run_in_thread(partial(self._journal.write, self.entry, durable=durable))
            except OSError as error:
                why = error.strerror or str(error)
                raise PlaceError(f"the record of a terminal cannot be written: {why}", state="nothing ran") from error

    async def check_health(self, limit_s: float) -> Health:
        """Send the cheapest request, and repeat it once if need be: our own event loop may have been blocked."""
        link = self._carrier.link
        if self._context.suspended:
            return Health.UNKNOWN
        for _ in range(2):
            try:
                async with asyncio.timeout(limit_s):
                    await self._ask()
            except TimeoutError:
                if link is not None and not link.connected:
                    return Health.UNKNOWN
            except HermesError as error:
                _log.info("a terminal is unhealthy: %s", error.what, extra={"target": self.entry.target})
                return Health.UNHEALTHY
            else:
                return Health.HEALTHY
        self._answers = False
        _log.info("a terminal is unhealthy: it does not answer", extra={"target": self.entry.target})
        return Health.UNHEALTHY

    async def _ask(self) -> None:
        link = self._carrier.link
        if link is not None:  # any answer means healthy
            try:
                await link.request("stays", {})
            except LeaseExpired:  # our process was suspended for long; the guest runs on
                await link.request("stays", {})
            return
        from hermes_exec.transport.shell.target import run_helper

        await run_helper(self._plan.backend, ["true"])

    async def renew(self) -> PooledTerminal:
        """Return the same target with a new Terminal, reset for the next caller; this one was revoked.

        Raises:
            HermesError: it could not be reset, or has jobs, which keep running; close it.
        """
        if self._closed_by_holder:
            raise UsageError("its holder has closed it")
        try:
            async with asyncio.timeout(self.pool.reset_s):
                return await self._renew()
        except TimeoutError:
            raise PlaceError(f"its reset took more than {self.pool.reset_s:g} s", state="it was ended") from None

    async def _renew(self) -> PooledTerminal:
        carrier = await self._other_carrier()
        fresh = PooledTerminal(self.pool, self._plan, carrier, self._journal, self.entry)
        fresh._writing = self._writing  # both write the same journal entry
        try:
            await fresh.record()
            await self._carrier.close()
            await fresh._reset()
        except BaseException:
            await carrier.close()
            raise
        self._context.spools.close()
        return fresh

    async def _other_carrier(self) -> Transport:
        """Open a second transport to the target; nothing of the first can be reached through it."""
        plan, link = self._plan, self._carrier.link
        if link is None:
            from hermes_exec.transport.shell import ShellTransport

            return await ShellTransport.open(plan.backend, env=plan.env, cwd=plan.cwd)
        if (await link.request("stays", {})).get("stays", True):
            raise UsageError("it has jobs or programs that outlive their terminal")
        other = Link(plan.backend, env=plan.env, cwd=plan.cwd, lease_s=plan.lease_s, python=plan.python)
        await other.attach(link.identity, str(link.identity["interpreter"]))
        return opening.create_guest_transport(plan.backend, other)

    async def _reset(self) -> None:
        reset = self.pool.reset
        if reset is None:
            raise UsageError("nothing says how to reset it")
        if callable(reset):
            await reset(self.terminal)
        else:
            words = ["sh", "-c", reset] if isinstance(reset, str) else list(reset)
            await self.terminal.run(words, check=True)

    def mark_lost(self, error: HermesError) -> None:
        """Stop trusting the target: everything that runs on it ends with ``error``."""
        link = self._carrier.link
        if link is not None:
            link.send(wire.frame(wire.BYE, 0, 0))  # so that the guest ends if it ever recovers
            link.on_protocol_error(error)

    async def close(self) -> None:
        """End everything but jobs, release the target and delete the journal entry. Never raises.

        The entry of a target that does not answer is kept: the next start decides whether it is gone.
        """
        self._over = True
        self.revoke()
        for letting_go in (self._carrier.close, self._leave):
            try:
                await letting_go()
            except Exception as error:  # noqa: BLE001  an SDK may raise anything, and no caller waits for this
                _log.warning("%s was not closed well: %s", self.entry.target, error)
        self._context.spools.close()
        async with self._writing:
            if self._answers:
                await run_in_thread(self._journal.remove, self.entry)

    async def _leave(self) -> None:
        backend, link = self._plan.backend, self._carrier.link
        if link is not None and link.guest_remains and not self._answers:
            place = self.entry.target
            _log.warning("%s does not answer; its jobs are left to themselves: hermes-exec jobs --on %s", place, place)
        await (release(backend) if link is not None and link.guest_remains else backend.close())

    @property
    def _context(self) -> TerminalContext:
        return cast("TerminalContext", vars(self.terminal)["_context"])


async def plan_terminal(pool: Pool, place: str | None = None) -> Plan:
    """Return the plan for a new terminal of a pool, or for attaching to the existing ``place`` of a dead orchestrator.

    SDKs are imported in a thread, since the import takes seconds.
    """

    def plan(target: str | Backend | None) -> Plan:
        return opening.plan_open(
            target, cwd=pool.cwd, env=pool.env, lease_s=pool.lease_s, carrier=pool.carrier, place=place
        )

    if callable(pool.target):
        return plan(pool.target())
    return await asyncio.to_thread(plan, pool.target)
