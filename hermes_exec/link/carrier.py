"""The guest's carrier: every promise, over one link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.carrier import Capabilities

if TYPE_CHECKING:
    from hermes_exec.link.link import Link


class GuestCarrier:
    """Commands as requests of a link."""

    def __init__(self, link: Link, features: frozenset[str], *, reconnect: bool = True) -> None:
        self.link: Link | None = link
        self.start = link.call
        self.close = link.close
        self._features = features
        self._link = link
        self._reconnect = reconnect

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
