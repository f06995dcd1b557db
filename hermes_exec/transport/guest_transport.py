"""The guest's carrier: every promise, over one link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec.errors import PlaceUnavailable
from hermes_exec.transport.call import Lost
from hermes_exec.transport.protocol import Capabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import Running, Sink


class GuestCarrier:
    """Commands as requests of a link."""

    def __init__(self, link: Link, features: frozenset[str], *, reconnect: bool = True) -> None:
        self.link: Link | None = link
        self.close = link.close
        self._features = features
        self._link = link
        self._reconnect = reconnect

    def start(self, operation: str, arguments: Mapping[str, Any], sink: Sink, /) -> Running:
        """Send a command to the guest.

        Raises:
            PlaceUnavailable: the guest was lost before; nothing ran.
        """
        try:
            return self._link.call(operation, arguments, sink)
        except Lost as lost:
            raise PlaceUnavailable(f"the guest was lost before ({lost.why})", remedy="open the place again") from lost

    @property
    def capabilities(self) -> Capabilities:
        """Everything, but what the place or its kernel lacks: a way back to the guest, or the adoption of orphans."""
        return Capabilities(
            carrier="guest",
            sessions=True,
            jobs=True,
            pty=True,
            file_transfer=True,
            forward=True,
            reconnect=self._reconnect,
            kill_tree=self._link.adopts,
            limits=True,
            features=self._features,
        )
