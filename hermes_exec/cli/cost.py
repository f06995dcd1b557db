"""``backends --cost``: list running billable resources of this project."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Resource, list_resources
from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.open_target import read_settings
from hermes_exec.cli.output import format_times, show_json, show_table
from hermes_exec.config.registry import find_backend_class, list_types
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.config.profile import Profile

_LIMIT_S = 60.0
"""Importing an SDK takes seconds, and an account may have many resources."""
_HOUR_S = 3600.0
_DAY_S = 86400.0


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
    if json:
        resources = [format_times(asdict(each), "since") for each in alive]
        show_json({"alive": resources, "failed": [_account_to_json(account) for account in failed]})
    elif alive:
        rows = [
            [each.target, _format_since(each), each.state, each.size, format_cost(each.hourly_cost), each.owner]
            for each in alive
        ]
        show_table(("TARGET", "SINCE", "STATE", "SIZE", "$/HOUR", "OWNER"), rows)
        note(f"running: {sum_costs([each.hourly_cost for each in alive])}")
    elif not failed:
        note("no billable resource of this project is running")
    for account in failed if not json else ():
        note(f"{account.name}: {account.failed}" + (f". Try: {account.remedy}" if account.remedy else ""))
    return CHECK_FAILED if failed else 0


async def query_accounts() -> list[Account]:
    """Query every account; one that fails has the reason."""
    return await asyncio.gather(*(_query(name, kind, profile) for name, kind, profile in _list_accounts()))


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


async def _query(name: str, kind: str, profile: Profile | None) -> Account:
    required = profile is not None
    try:
        backend = await asyncio.to_thread(find_backend_class, kind)
        async with asyncio.timeout(_LIMIT_S):
            return Account(name, await list_resources(backend, profile))
    except TimeoutError:
        return Account(name, [], f"no answer within {_LIMIT_S:g} s", required=required)
    except HermesError as error:
        return Account(name, [], error.what, error.remedy, required=required)


def format_cost(hourly_cost: float | None) -> str:
    """Format a price an hour."""
    return "unknown" if hourly_cost is None else f"${hourly_cost:.4g}"


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
