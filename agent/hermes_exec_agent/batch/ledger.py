"""The ledger of a run's caps, and the accounts of shards and trials.

The ledger is a chain of numbered grants. Grant N+1 states the sum of all grants with its own, and is made by an
exclusive link, so that of several shards that draw at once one wins and the others look again: the sum never exceeds
the cap. A shard reserves the upper bound of each request from its own grants before the request, and logs it, so that
what a killed shard did not use can be returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import operator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec._async import wait_done
from hermes_exec.errors import HermesError
from hermes_exec_agent.batch.run_folder import BEGUN, PREPAID, link_exclusive
from hermes_exec_agent.batch.shard_log import LogTail

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.settings import Caps
    from hermes_exec_agent.batch.shard_log import ShardLog

_NANO = 10**9
_HOUR_MS = 3_600_000
_SHARE = 4
"""A draw takes at most one part in so many of what is left for each shard, unless the request needs more."""
_AHEAD = 256
"""A draw takes at most so many times what the request needs."""


class CapReached(HermesError):
    """A cap of the run does not allow another request to a model; it was not sent."""


class TrialCapReached(HermesError):
    """A cap of the trial does not allow another request to a model; it was not sent."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of what is capped; money is in billionths of a US dollar, so that sums are exact."""

    money: int = 0
    tokens: int = 0
    steps: int = 0
    gpu_ms: int = 0
    """Milliseconds of one GPU."""

    @classmethod
    def of(cls, *, dollars: float = 0.0, tokens: int = 0, steps: int = 0) -> Amounts:
        """Return amounts, the money rounded up."""
        return cls(math.ceil(dollars * _NANO), tokens, steps)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Amounts:
        """Return the amounts of a record."""
        return cls(*(int(record.get(name, 0)) for name in cls.__slots__))

    def to_dollars(self) -> float:
        """Return the money in US dollars."""
        return self.money / _NANO

    def to_gpu_hours(self) -> float:
        """Return the hours of one GPU."""
        return self.gpu_ms / _HOUR_MS

    def to_record(self) -> dict[str, int]:
        """Return the amounts as a record."""
        return asdict(self)

    @property
    def values(self) -> tuple[int, int, int, int]:
        """The amounts in the order of the fields."""
        return self.money, self.tokens, self.steps, self.gpu_ms

    def _combine(self, function: Callable[[int, int], int], other: Amounts) -> Amounts:
        return Amounts(*map(function, self.values, other.values))

    def __add__(self, other: Amounts) -> Amounts:
        return self._combine(operator.add, other)

    def __sub__(self, other: Amounts) -> Amounts:
        return self._combine(operator.sub, other)

    def __mul__(self, number: int) -> Amounts:
        return Amounts(*(each * number for each in self.values))

    def __floordiv__(self, number: int) -> Amounts:
        return Amounts(*(each // number for each in self.values))

    def fits(self, other: Amounts) -> bool:
        """Whether each amount is at most that of ``other``."""
        return all(map(operator.le, self.values, other.values))

    def larger(self, other: Amounts) -> Amounts:
        """Return the larger one of each."""
        return self._combine(max, other)

    def smaller(self, other: Amounts) -> Amounts:
        """Return the smaller one of each."""
        return self._combine(min, other)


_NO_CAP = 1 << 62
_ONE_EACH = Amounts(1, 1, 1, 1)


def read_trial_caps(caps: Caps) -> Amounts:
    """Return the caps of one trial as amounts."""
    return Amounts(
        _NO_CAP if caps.trial_money is None else math.floor(caps.trial_money * _NANO),
        caps.trial_tokens or _NO_CAP,
        _NO_CAP,
        _NO_CAP,
    )


def read_caps(caps: Caps) -> Amounts:
    """Return the caps of a run as amounts; what has no cap is a number that no run reaches."""
    return Amounts(
        _NO_CAP if caps.money is None else math.floor(caps.money * _NANO),
        caps.tokens or _NO_CAP,
        caps.steps or _NO_CAP,
        _NO_CAP if caps.gpu_hours is None else math.floor(caps.gpu_hours * _HOUR_MS),
    )


class Ledger:
    """The grants of a run."""

    def __init__(self, folder: Path, cap: Amounts) -> None:
        """``folder`` exists; ``cap`` is for all grants together."""
        self._folder = folder
        self._cap = cap
        self._last = 0
        self.total = Amounts()
        """The sum of all grants that are known."""

    def refresh(self) -> None:
        """Read the grants that other processes made."""
        while (path := self._folder / str(self._last + 1)).exists():
            self.total = Amounts.from_record(json.loads(path.read_bytes())["total"])
            self._last += 1

    def draw(self, shard: str, need: Amounts, shards: int) -> Amounts | None:
        """Grant at least ``need`` to a shard; None if the cap does not allow that.

        Raises:
            OSError: the grant cannot be written.
        """
        while True:
            self.refresh()
            left = self._cap - self.total
            if not need.fits(left):
                return None
            grant = need.larger((left // (_SHARE * shards)).smaller(need * _AHEAD))
            if self._append(shard, grant):
                return grant

    def draw_part(self, shard: str, parts: int, most: Amounts) -> Amounts:
        """Grant a shard one of so many equal parts of what is left of each cap, at most ``most``.

        It gets nothing of what has no cap.

        Raises:
            OSError: the grant cannot be written.
        """
        while True:
            self.refresh()
            part = (self._cap - self.total + _ONE_EACH * (parts - 1)) // parts  # rounded up, so that it is at least 1
            part = part.smaller(most)
            grant = Amounts(
                *(
                    0 if cap == _NO_CAP else max(each, 0)
                    for cap, each in zip(self._cap.values, part.values, strict=True)
                )
            )
            if grant == Amounts() or self._append(shard, grant):
                return grant

    def give_back(self, shard: str, amounts: Amounts) -> None:
        """Return what a shard did not use."""
        while amounts != Amounts():
            self.refresh()
            if self._append(shard, Amounts() - amounts):
                return

    def _append(self, shard: str, grant: Amounts) -> bool:
        content = {"shard": shard, "grant": grant.to_record(), "total": (self.total + grant).to_record()}
        return link_exclusive(self._folder / str(self._last + 1), content)

    def sum_grants(self) -> dict[str, Amounts]:
        """Return what each shard was granted and did not return."""
        found: dict[str, Amounts] = {}
        for number in range(1, self._last + 1):
            entry = json.loads((self._folder / str(number)).read_bytes())
            shard = str(entry["shard"])
            found[shard] = found.get(shard, Amounts()) + Amounts.from_record(entry["grant"])
        return found


def settle_shard(run: RunFolder, shard: str, cap: Amounts) -> None:
    """Return what a dead shard was granted and did not use; a request without a known end counts in full."""
    ledger = Ledger(run.path / "ledger", cap)
    ledger.refresh()
    granted = ledger.sum_grants().get(shard)
    if granted is None:
        return
    used = Amounts()
    folder = run.shard(shard)
    is_prepaid = (folder / PREPAID).exists()  # what it returned, it returned to a ledger of its own
    if is_prepaid and (folder / BEGUN).exists() and not (folder / "ended").exists():
        return  # its log may lack requests, so that its grant counts in full
    for event in LogTail(run.shard(shard)).read():
        if event["event"] == "reserved":
            used += Amounts.from_record(event)
        elif event["event"] == "settled":
            used += Amounts.from_record(event) - Amounts.from_record(event["reserved"])
        elif event["event"] == "returned" and not is_prepaid:
            return
    if is_prepaid:  # its log was in the reach of agents
        used = used.larger(Amounts()).smaller(granted)
    ledger.give_back(shard, granted - used)


class ShardAccount:
    """What a shard may still spend. It belongs to one event loop."""

    def __init__(self, ledger: Ledger, shard: str, shards: int, log: ShardLog) -> None:
        self._ledger = ledger
        self._shard = shard
        self._shards = shards
        self._log = log
        self._free = Amounts()
        self._open = 0
        self._drawing = asyncio.Lock()
        self._changed = asyncio.Event()

    async def reserve(self, need: Amounts) -> None:
        """Reserve an amount; wait while open requests of this shard may free enough.

        Raises:
            CapReached: the cap of the run does not allow it.
        """
        while not need.fits(self._free):
            async with self._drawing:
                if need.fits(self._free):
                    break
                self._changed.clear()
                if await self._draw((need - self._free).larger(Amounts())):
                    continue
                if need.fits(self._free):
                    break
                if not self._open:
                    raise CapReached("a cap of the run is reached", remedy="resume with a larger cap")
                await self._changed.wait()
        self._free -= need
        self._open += 1
        self._log.write("reserved", **need.to_record())

    async def reserve_now(self, need: Amounts) -> bool:
        """Reserve an amount that `release` settles; return False, without waiting for others, if no cap allows it."""
        async with self._drawing:
            if not need.fits(self._free):
                await self._draw((need - self._free).larger(Amounts()))
            if not need.fits(self._free):
                return False
            self._free -= need
        self._log.write("reserved", **need.to_record())
        return True

    def release(self, reserved: Amounts, used: Amounts) -> None:
        """Count what was used of an amount of `reserve_now`."""
        self._open += 1
        self.settle(reserved, used)

    async def _draw(self, lack: Amounts) -> bool:
        """Draw a grant, also if the caller is cancelled meanwhile; return False if the cap allows none."""
        drawing = asyncio.ensure_future(asyncio.to_thread(self._ledger.draw, self._shard, lack, self._shards))
        cancelled = await wait_done(drawing)
        grant = drawing.result()
        if grant is not None:
            self._free += grant
        if cancelled:
            raise asyncio.CancelledError
        return grant is not None

    def settle(self, reserved: Amounts, used: Amounts) -> None:
        """Count what a request used, and free the rest of what was reserved for it."""
        self._free += reserved - used
        self._open -= 1
        self._changed.set()
        with contextlib.suppress(OSError):  # a full disk: the request then counts in full
            self._log.write("settled", **used.to_record(), reserved=reserved.to_record())

    async def close(self) -> None:
        """Return what is free."""
        free, self._free = self._free, Amounts()
        await asyncio.to_thread(self._ledger.give_back, self._shard, free)
        self._log.write("returned", **free.to_record())


class TrialAccount:
    """What one trial used, within its own caps and the account of its shard."""

    def __init__(self, caps: Caps, shard: ShardAccount) -> None:
        """``shard`` is the account of the shard that runs the trial."""
        self._cap = read_trial_caps(caps)
        self._shard = shard
        self._used = Amounts()

    async def reserve(self, need: Amounts) -> None:
        """Reserve an amount.

        Raises:
            TrialCapReached: the trial's cap does not allow it.
            CapReached: that of the run does not.
        """
        if not (self._used + need).fits(self._cap):
            raise TrialCapReached("a cap of the trial is reached")
        self._used += need
        try:
            await self._shard.reserve(need)
        except BaseException:
            self._used -= need
            raise

    def settle(self, reserved: Amounts, used: Amounts) -> None:
        """Count what a request used."""
        self._used += used - reserved
        self._shard.settle(reserved, used)
