"""The HTTP listener of the gateway, for platforms that deliver messages by webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from aiohttp import web


@runtime_checkable
class WebhookReceiver(Protocol):
    """An adapter that takes requests of its platform."""

    @property
    def path(self) -> str:
        """The path of its requests, such as ``/slack``; empty if this account takes none."""
        ...

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request of at most 1 MiB within ten seconds.

        It compares the signature in constant time before it reads anything of the body, and answers 200 only after
        ``accept`` of `Adapter.receive` has returned. While `Adapter.receive` does not run, it answers 503.
        """
        ...
