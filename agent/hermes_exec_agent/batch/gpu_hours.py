"""GPU hours as a cap: how many GPUs shards and targets hold, and the reservation of their time before it passes.

A holder of GPUs reserves their time in slices, each one before the last has passed, so that the sum never exceeds the
cap. What gets no further slice is ended in the rest of its last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from hermes_exec._async import cancel_and_wait
from hermes_exec.config.load import load_settings, resolve
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.batch.engine import find_engine
from hermes_exec_agent.batch.ledger import Amounts, CapReached

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from hermes_exec_agent.batch.ledger import ShardAccount
    from hermes_exec_agent.batch.settings import RunSettings

_SLICE_S = 60.0
_SHORTEST_S = 2.0
_PARTS = 16
"""A slice is at most one of so many parts of the cap."""


def count_gpus(text: str | None) -> float | None:
    """Return the GPUs that an option such as ``2``, ``A100:2`` or ``0,1`` asks for; None if it says no number."""
    text = (text or "").strip()
    number = text.rpartition(":")[2]
    if not text or text == "0":
        return 0.0
    if "all" in text.lower().split(","):
        return None
    if "," in text:
        return float(len(text.split(",")))
    with contextlib.suppress(ValueError):
        return max(float(number), 0.0)
    return 1.0


def count_target_gpus(target: Any) -> float | None:
    """Return the GPUs of a target, by its text or its profile."""
    profile = resolve(target, load_settings()).profile if isinstance(target, str) else target
    return count_gpus(getattr(profile, "gpus", None) or getattr(profile, "gpu", None))


def count_shard_gpus(settings: RunSettings) -> float | None:
    """Return the GPUs that the engine of a run reserves for each shard."""
    count = getattr(find_engine(settings.engine), "count_gpus", None)
    return 0.0 if count is None else count(settings.engine_options)


def set_gpus(settings: RunSettings, targets: Iterable[str]) -> RunSettings:
    """Return the settings with the GPUs of each shard, if there is a cap of GPU hours.

    Raises:
        UsageError: the number of GPUs of a shard or a target is not known.
    """
    if settings.caps.gpu_hours is None:
        return settings
    unknown = [target for target in sorted(targets) if count_target_gpus(target) is None]
    count = count_shard_gpus(settings)
    if count is None or unknown:
        name = unknown[0] if unknown else f"--engine {settings.engine}"
        raise UsageError(
            f"--max-gpu-hours: the number of GPUs of {to_printable(name)} is not known", remedy="a number of GPUs"
        )
    return settings.model_copy(update={"shard_gpus": count})


def choose_slice(hours: float) -> float:
    """Return the seconds of one reservation for one GPU."""
    return min(_SLICE_S, max(hours * 3600 / _PARTS, _SHORTEST_S))


@contextlib.asynccontextmanager
async def meter(
    account: ShardAccount, gpus: float, slice_s: float, expire: Callable[[], object]
) -> AsyncGenerator[None]:
    """Reserve the time of GPUs while the block holds them; ``expire`` is called when the cap allows no more.

    Raises:
        CapReached: the cap allows no first slice; the block was not entered.
    """
    need = Amounts(gpu_ms=round(gpus * slice_s * 1000))
    if not await account.reserve_now(need):
        raise CapReached("the cap of GPU hours is reached", remedy="resume with a larger cap")
    began = time.monotonic()
    slices = 1

    async def renew() -> None:
        nonlocal slices
        while True:
            margin = slice_s / 4
            await asyncio.sleep(max(began + slices * slice_s - margin - time.monotonic(), 0.0))
            granted = False
            with contextlib.suppress(TimeoutError, HermesError, OSError):
                async with asyncio.timeout(margin):
                    granted = await account.reserve_now(need)
            if not granted:
                expire()
                return
            slices += 1

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        await cancel_and_wait([renewing])
        used = Amounts(gpu_ms=round(gpus * (time.monotonic() - began) * 1000))
        account.release(need * slices, used)


@contextlib.asynccontextmanager
async def hold_gpus(account: ShardAccount, gpus: float, hours: float) -> AsyncGenerator[None]:
    """Let the calling task hold GPUs; it is cancelled when the cap allows no more.

    Raises:
        CapReached: the cap is reached; the block has ended, or was not entered.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  a coroutine runs in a task
    has_expired = False

    def expire() -> None:
        nonlocal has_expired
        has_expired = True
        task.cancel()

    try:
        async with meter(account, gpus, choose_slice(hours), expire):
            yield
    except asyncio.CancelledError:
        if not has_expired or task.uncancel():
            raise
        raise CapReached("the cap of GPU hours is reached", remedy="resume with a larger cap") from None
