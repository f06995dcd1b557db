"""Frames as one side of a connection sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.guest.core import wire

if TYPE_CHECKING:
    from collections.abc import Iterable


def seal_all(frames: Iterable[bytes], *, checksum: bool = False) -> list[bytes]:
    """The frames of one direction of a new connection, each with its end."""
    sealer = wire.Sealer()
    sealer.checksum = checksum
    return [sealer.seal(frame) for frame in frames]
