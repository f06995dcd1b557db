"""Openings and closings that are cancelled at many moments, early and late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import hermes_exec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec.backend import Backend

MOMENTS_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4)


async def openings(backend: Callable[[], Backend], moments_s: Sequence[float] = MOMENTS_S) -> None:
    """Cancel an opening after each of so many seconds; close what was open by then."""
    for after_s in moments_s:
        opening = asyncio.ensure_future(hermes_exec.open(backend(), audit=False))
        await asyncio.wait([opening], timeout=after_s)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening.result().close()


async def closings(backend: Callable[[], Backend], moments_s: Sequence[float] = MOMENTS_S[:8]) -> None:
    """Cancel a closing after each of so many seconds."""
    for after_s in moments_s:
        terminal = await hermes_exec.open(backend(), audit=False)
        closing = asyncio.ensure_future(terminal.close())
        await asyncio.wait([closing], timeout=after_s)
        closing.cancel()
        await asyncio.wait([closing])
