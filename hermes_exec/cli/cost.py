"""``backends --cost``: list running billable resources of this project."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Resource, SupportsListing, list_resources
from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.open_target import read_settings
from hermes_exec.cli.output import format_times, show_json, show_table
from hermes_exec.config.registry import find_backend_class, list_types
from hermes_exec.errors import HermesError
from hermes_exec.observe.spending import sum_spent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec.backend import Backend
    from hermes_exec.config.profile import Profile
    from hermes_exec.observe.spending import Spent

_LIMIT_S = 60.0
"""Importing an SDK takes seconds, and an account may have many resources."""
_PRICES_LIMIT_S = 10.0
"""A list that has prices besides does not wait long for them."""
_HOUR_S = 3600.0
_DAY_S = 86400.0
_DROPPED = ("OWNER", "SIZE", "SO FAR")
"""The columns that a narrow terminal does not show, in this order."""


@dataclass(frozen=True, slots=True)
class Account:
    """The answer of one account: its running resources, or the reason for the failure."""

    name: str
    alive: list[Resource]
    failed: str = ""
    remedy: str = ""
    required: bool = False
    """Whether a profile names the account, so that a failure is an error."""


async def show_cost(*, json: bool) -> int:
    """Query every account and print a table; the exit code is 1 when an account of a profile fails."""
    accounts = await query_accounts()
    failed = [account for account in accounts if account.failed and account.required]
    found = {each.target: each for account in accounts for each in account.alive}
    alive = sorted(found.values(), key=lambda each: each.since or 0.0)
    now = time.time()
    spent = sum_spent(_find_midnight(now), now, found)
    if json:
        costs = [{"cost": compute_cost(each, now), "cost_today": compute_cost(each, now, today=True)} for each in alive]
        resources = [format_times({**asdict(each), **cost}, "since") for each, cost in zip(alive, costs, strict=True)]
        ended = {"cost": spent.cost, "count": spent.count, "unknown": spent.unknown}
        show_json(
            {"alive": resources, "ended_today": ended, "failed": [_account_to_json(account) for account in failed]}
        )
    elif alive:
        rows = [_list_cells(each, now) for each in alive]
        show_table(("TARGET", "SINCE", "STATE", "SIZE", "$/HOUR", "TODAY", "SO FAR", "OWNER"), rows, drop=_DROPPED)
        is_estimated = any(each.price_source for each in alive)
        note(f"running: {'~' * is_estimated}{sum_costs([each.hourly_cost for each in alive])}")
        if sources := dict.fromkeys(each.price_source for each in alive if each.price_source):
            note(f"~ is at least so much, by {' and '.join(sources)}; hourly_cost in the profile replaces it")
    elif not failed:
        note("no billable resource of this project is running")
    if not json and (today := _describe_today(alive, spent, now)):
        note(today)
    for account in failed if not json else ():
        note(f"{account.name}: {account.failed}" + (f". Try: {account.remedy}" if account.remedy else ""))
    return CHECK_FAILED if failed else 0


async def query_accounts() -> list[Account]:
    """Query every account; one that fails has the reason."""
    return await asyncio.gather(*(_query(name, kind, profile) for name, kind, profile in _list_accounts()))


async def read_prices(backends: Iterable[Backend]) -> dict[str, Resource]:
    """Return the running billable resources on the accounts of these backends, by target; an account may fail."""
    accounts: list[tuple[str, Profile | None]] = []
    for each in backends:
        if isinstance(each, SupportsListing) and (each.type, each.profile) not in accounts:
            accounts.append((each.type, each.profile))
    found = await asyncio.gather(*(_query(kind, kind, profile, _PRICES_LIMIT_S) for kind, profile in accounts))
    return {each.target: each for account in found for each in account.alive}


def _account_to_json(account: Account) -> dict[str, Any]:
    return {"name": account.name, "failed": account.failed, "remedy": account.remedy}


def _list_accounts() -> list[tuple[str, str, Profile | None]]:
    """List the accounts: one for each profile, then the default one of each backend."""
    configured = read_settings()
    named: list[tuple[str, str, Profile | None]] = []
    for name in configured.profiles:
        try:
            profile = configured.profiles[name]
        except HermesError as error:
            note(f"{name}: {error.what}")
            continue
        named.append((name, profile.type, profile))
    return [*named, *((kind, kind, None) for kind in list_types())]


async def _query(name: str, kind: str, profile: Profile | None, limit_s: float = _LIMIT_S) -> Account:
    required = profile is not None
    try:
        backend = await asyncio.to_thread(find_backend_class, kind)
        async with asyncio.timeout(limit_s):
            return Account(name, await list_resources(backend, profile))
    except TimeoutError:
        return Account(name, [], f"no answer within {limit_s:g} s", required=required)
    except HermesError as error:
        return Account(name, [], error.what, error.remedy, required=required)


def format_cost(cost: float | None, *, estimated: bool = False) -> str:
    """Format an amount of US dollars; ``~`` is an estimate."""
    return "unknown" if cost is None else f"{'~' * estimated}${cost:.4g}"


def compute_cost(each: Resource, now: float, *, today: bool = False) -> float | None:
    """Return the cost of a resource since it was created, or since midnight; None if it is not known."""
    if each.hourly_cost is None or each.since is None:
        return None
    begin = max(each.since, _find_midnight(now)) if today else each.since
    return each.hourly_cost * max(0.0, now - begin) / _HOUR_S


def _describe_today(alive: Sequence[Resource], spent: Spent, now: float) -> str:
    """Return the cost since midnight of what runs and of what has ended; empty if nothing is known to have run."""
    costs = [cost for each in alive if (cost := compute_cost(each, now, today=True)) is not None]
    counts = [f"{len(costs)} running"] * bool(costs) + [f"{spent.count} ended"] * bool(spent.count)
    if not (counts or spent.unknown):
        return ""
    is_estimated = spent.is_estimated or any(each.price_source for each in alive)
    total = format_cost(sum(costs) + spent.cost, estimated=is_estimated)
    lost = f"; the price or the end of {spent.unknown} more is not known" * bool(spent.unknown)
    return f"today: {total} so far, for {' and '.join(counts) or 'none'}{lost}"


def _find_midnight(now: float) -> float:
    day = time.localtime(now)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday, 0, 0, 0, 0, 0, -1))


def _list_cells(each: Resource, now: float) -> list[str]:
    estimated = bool(each.price_source)
    costs = [each.hourly_cost, compute_cost(each, now, today=True), compute_cost(each, now)]
    prices = [format_cost(cost, estimated=estimated) for cost in costs]
    return [each.target, _format_since(each), each.state, each.size, *prices, each.owner]


def sum_costs(hourly: Sequence[float | None]) -> str:
    """Return the sum an hour and a day of the known prices, and how many are not known; empty if there is none."""
    known = [each for each in hourly if each is not None]
    unknown = len(hourly) - len(known)
    parts = [f"${sum(known):.4g} an hour, ${24 * sum(known):.4g} a day"] * bool(known)
    parts += [f"{unknown} of unknown price: set hourly_cost in the profile"] * bool(unknown)
    return "; ".join(parts)


def _format_since(each: Resource) -> str:
    """Format the time of creation and the age."""
    if each.since is None:
        return "unknown"
    passed_s = max(0.0, time.time() - each.since)
    ago = f"{passed_s / _DAY_S:.1f} days" if passed_s > _DAY_S else f"{passed_s / _HOUR_S:.1f} hours"
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(each.since))} ({ago})"
