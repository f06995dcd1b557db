"""A server of Honcho as the provider of user models, by its own client.

A person is one peer, whatever program or machine a conversation was held in. Only the person's own words are sent: no
reply, no output, no attached file, no message with a secret. Each call has a time limit, and after repeated failures no
call is tried for a while, so that a turn waits for a server that is away at most once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hermes_exec.config.secrets import Secret, resolve_secrets
from hermes_exec.errors import ConfigError, HermesError
from hermes_exec.extras import require
from hermes_exec_agent.memory.claims import MOST_CONFIDENT, Claim, ClaimStore, guess_kind
from hermes_exec_agent.memory.persons import OWNER
from hermes_exec_agent.memory.screening import find_refusal
from hermes_exec_agent.memory.user_model import UNKNOWN, Answer, Learned, own_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from honcho import Honcho  # pyright: ignore[reportMissingTypeStubs]  it has types, and no marker of them
    from honcho.peer import Peer  # pyright: ignore[reportMissingTypeStubs]  it has types, and no marker of them

    from hermes_exec.config.settings import MemorySettings
    from hermes_exec_agent.runtime.events.event import Event

T = TypeVar("T")

WORKSPACE = "hermes-exec"
LIMIT_S: float = 5.0
"""The time limit of a call, with all its requests."""
_NO_KEY = "none"
"""Sent instead of a key, as the client would look for one of its own in the environment."""
_FAILURES = 2
_REST_S: float = 60.0
_BATCH = 100
_LONGEST = 20_000
"""Characters of a message that are sent."""
_DERIVED: float = 0.6
"""The confidence of conclusions that the server derived from others."""


class HonchoFailed(HermesError):
    """The server of Honcho did not answer, refused, or sent something else."""


@dataclass(slots=True)
class Breaker:
    """Refuses calls for ``_REST_S`` seconds after ``_FAILURES`` failures in a row."""

    failures: int = 0
    until: float = 0.0

    def check(self) -> None:
        """Raise `HonchoFailed` while calls are refused."""
        if (rest := self.until - time.monotonic()) > 0:
            raise HonchoFailed(f"Honcho failed repeatedly; it is tried again in {rest:.0f} s", remedy="wait")

    def count(self, *, failed: bool) -> None:
        """Count the outcome of a call."""
        self.failures = self.failures + 1 if failed else 0
        if self.failures >= _FAILURES:
            self.failures, self.until = 0, time.monotonic() + _REST_S


_breakers: dict[str, Breaker] = {}
"""By address: conversations of one program share what they know of a server."""


@dataclass(slots=True)
class HonchoUserModel:
    """The peer of a person in a server of Honcho."""

    store: ClaimStore
    url: str
    key: Secret | None = None
    limit_s: float = LIMIT_S
    is_external: bool = field(default=True, init=False)

    @property
    def peer(self) -> str:
        """The id of the person's peer."""
        return self.store.person or OWNER

    async def ask(self, question: str) -> Answer:
        """Return the server's answer, with the conclusions that it read.

        Raises:
            HermesError: the server does not answer in time, refuses, or sends something else.
        """

        async def work(client: Honcho) -> Answer:
            peer = await client.aio.peer(self.peer)
            reply = await peer.aio.chat(question, include_evidence=True)
            read = reply.evidence.conclusions if reply.evidence is not None else []
            claims = [_to_claim(each.id, each.content, each.level, each.created_at.timestamp()) for each in read]
            return Answer(str(reply.content or UNKNOWN), tuple(claims) if reply.content else ())

        return await self._call(work)

    async def claims(self) -> list[Claim]:
        """Return the newest conclusions about the person.

        Raises:
            HermesError: see `ask`.
        """

        async def work(client: Honcho) -> list[Claim]:
            peer: Peer = await client.aio.peer(self.peer)
            page = await peer.conclusions.aio.list(size=_BATCH)
            return [_to_claim(each.id, each.content, each.level, _seconds(each.created_at)) for each in page.items]

        return await self._call(work)

    async def record(self, events: Sequence[Event]) -> Learned:
        """Send the person's own words that were not sent before.

        Raises:
            HermesError: see `ask`; words that were not sent stay in the log for the next call.
        """
        if not events:
            return Learned()
        conversation = events[0].conversation
        sent = await asyncio.to_thread(self.store.last_sent, conversation)
        messages = [(event, words) for event, words in own_messages(events, sent) if not find_refusal(words)]
        for start in range(0, len(messages), _BATCH):
            batch = messages[start : start + _BATCH]
            await self._call(partial(self._send, conversation=conversation, batch=batch))
            await asyncio.to_thread(self.store.note_sent, conversation, batch[-1][0].number)
        return Learned(lines=(f"{len(messages)} messages were sent to Honcho",))

    async def _send(self, client: Honcho, conversation: str, batch: Sequence[tuple[Event, str]]) -> None:
        peer = await client.aio.peer(self.peer)
        session = await client.aio.session(conversation)
        await session.aio.add_messages(
            [
                peer.message(words[:_LONGEST], metadata={"event": event.number}, created_at=_to_iso(event.at))
                for event, words in batch
            ]
        )

    async def _call(self, work: Callable[[Honcho], Awaitable[T]]) -> T:
        """Run requests for a bounded time. An error has no error of the client as its context, which may have the key.

        Raises:
            HonchoFailed: the server failed, or failed repeatedly before.
        """
        breaker = _breakers.setdefault(self.url, Breaker())
        breaker.check()
        client = await asyncio.to_thread(self._create_client)
        from honcho.http.exceptions import HonchoError  # pyright: ignore[reportMissingTypeStubs]  see above

        try:
            async with asyncio.timeout(self.limit_s):
                result = await work(client)
        except TimeoutError:
            problem = f"no answer within {self.limit_s:g} s"
        except HonchoError as error:  # its text comes from the server, which knows the key
            problem = f"status {error.status}" if error.status else "the connection failed"
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            problem = f"an answer of another form ({type(error).__name__})"
        else:
            breaker.count(failed=False)
            return result
        finally:
            await client._async_http_client.close()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way
        breaker.count(failed=True)
        remedy = "check honcho_key" if "401" in problem or "403" in problem else "check honcho_url and the server"
        raise HonchoFailed(f"Honcho: {problem}", remedy=remedy)

    def _create_client(self) -> Honcho:
        from honcho import Honcho  # pyright: ignore[reportMissingTypeStubs]  it has types, and no marker of them

        return Honcho(
            api_key=self.key.reveal() if self.key is not None else _NO_KEY,
            base_url=self.url,
            workspace_id=WORKSPACE,
            timeout=self.limit_s,
            max_retries=0,
        )


def create_honcho(store: ClaimStore, settings: MemorySettings, environ: Mapping[str, str]) -> HonchoUserModel:
    """Return the configured provider.

    Raises:
        ConfigError: the address or the key is missing.
        MissingExtra: the client is not installed.
    """
    if not settings.honcho_url.startswith(("http://", "https://")):
        raise ConfigError('memory: user_model = "honcho" needs honcho_url', remedy='honcho_url = "https://…"')
    require("honcho", "the user model of Honcho")
    key = settings.honcho_key
    secret = resolve_secrets({"honcho_key": key}, environ)["honcho_key"] if key is not None else None
    return HonchoUserModel(store, settings.honcho_url, secret, LIMIT_S)


def _to_claim(id: str, text: str, level: str, at: float) -> Claim:
    confidence = MOST_CONFIDENT if level == "explicit" else _DERIVED
    return Claim(f"honcho:{id}", " ".join(text.split()), guess_kind(text), confidence, (), at)


def _seconds(at: object) -> float:
    import datetime as dt

    if isinstance(at, dt.datetime):
        return at.timestamp()
    return dt.datetime.fromisoformat(str(at)).timestamp()


def _to_iso(at: float) -> str:
    import datetime as dt

    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat()
