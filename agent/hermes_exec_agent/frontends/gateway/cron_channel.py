"""The channel ``message`` of scheduled jobs: reports to paired persons, by the gateway's outbox."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.gateway.database import gateway_file
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.scheduler.delivery import Channel

if TYPE_CHECKING:
    from hermes_exec_agent.frontends.gateway.records import Address
    from hermes_exec_agent.scheduler.outbox import Delivery

_SUBJECT = 400


class MessageChannel(Channel):
    """Puts reports into the outbox for ``PERSON``, or for ``PERSON@PLATFORM``; the gateway sends them."""

    @classmethod
    def check(cls, rest: str) -> str:
        """Return the address; the person has to be paired."""
        with Store(gateway_file(os.environ)) as store:
            _find_chat(store, rest)
        return rest

    @classmethod
    async def send(cls, rest: str, delivery: Delivery) -> None:
        """Put the report into the outbox once, whatever the number of attempts."""
        await asyncio.to_thread(_put, rest, delivery)


def _put(rest: str, delivery: Delivery) -> None:
    with Store(gateway_file(os.environ)) as store:
        text = f"{flatten(delivery.subject, _SUBJECT)}\n\n{delivery.body}".strip()
        store.put_once(f"cron:{delivery.key}", rest.partition("@")[0], _find_chat(store, rest), text)


def _find_chat(store: Store, rest: str) -> Address:
    """Return the chat of an address.

    Raises:
        UsageError: there is no such person, or the person wrote nothing there.
    """
    name, _, platform = rest.partition("@")
    person = store.person(name)
    if person is None:
        raise UsageError(
            f"--deliver message:{to_printable(rest)}: there is no such person", remedy="hermes-exec gateway people"
        )
    address = store.find_chat(name, platform) if platform else person.address
    if address is None or not address.platform:
        where = f" on {to_printable(platform)}" if platform else ""
        raise UsageError(
            f"--deliver message:{to_printable(rest)}: the person has no chat{where} yet",
            remedy="write to the gateway there first",
        )
    return address
