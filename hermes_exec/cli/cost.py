"""``backends --cost``: what of ours is alive where somebody pays for it, and since when."""

import asyncio
import time
from dataclasses import asdict, dataclass

from hermes_exec.backend import Resource, list_resources
from hermes_exec.cli.console import CHECK_FAILED, note
from hermes_exec.cli.open_target import settings
from hermes_exec.cli.output import show_json, show_table
from hermes_exec.config.profile import Profile
from hermes_exec.config.registry import backend_class, known_types
from hermes_exec.errors import HermesError

_PATIENCE_S = 60.0
"""Importing an SDK takes seconds, and an account may have many."""
_HOUR_S = 3600.0
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Account:
    """One account that was asked: what is alive there, or why it did not say."""

    name: str
    alive: list[Resource]
    failed: str = ""
    remedy: str = ""
    meant: bool = False
    """Whether a profile names it, so that it should have answered."""


async def cost(*, json: bool) -> int:
    """Ask every account; the exit code is 1 when one that a profile names did not answer."""
    accounts = await asyncio.gather(*(_ask(name, kind, profile) for name, kind, profile in _accounts()))
    failed = [account for account in accounts if account.failed and account.meant]
    found = {each.target: each for account in accounts for each in account.alive}
    alive = sorted(found.values(), key=lambda each: each.since or 0.0)
    if json:
        show_json({"alive": [asdict(each) for each in alive], "failed": [asdict(account) for account in failed]})
    elif alive:
        rows = [[each.target, _since(each), each.state, each.size, each.owner] for each in alive]
        show_table(("TARGET", "SINCE", "STATE", "SIZE", "OWNER"), rows)
    elif not failed:
        note("nothing of ours is alive where it costs something")
    for account in failed if not json else ():
        note(f"{account.name}: {account.failed}" + (f". Try: {account.remedy}" if account.remedy else ""))
    return CHECK_FAILED if failed else 0


def _accounts() -> list[tuple[str, str, Profile | None]]:
    """Every account that can be named: each profile's, then for each kind of place the one found without any."""
    configured = settings()
    named: list[tuple[str, str, Profile | None]] = []
    for name in configured.profiles:
        try:
            profile = configured.profiles[name]
        except HermesError as error:
            note(f"{name}: {error.what}")
            continue
        named.append((name, profile.type, profile))
    return [*named, *((kind, kind, None) for kind in known_types())]


async def _ask(name: str, kind: str, profile: Profile | None) -> Account:
    meant = profile is not None
    try:
        backend = await asyncio.to_thread(backend_class, kind)
        async with asyncio.timeout(_PATIENCE_S):
            return Account(name, await list_resources(backend, profile))
    except TimeoutError:
        return Account(name, [], f"no answer within {_PATIENCE_S:g} s", meant=meant)
    except HermesError as error:
        return Account(name, [], error.what, error.remedy, meant=meant)


def _since(each: Resource) -> str:
    """When it was created, and how long ago that is."""
    if each.since is None:
        return "unknown"
    passed_s = max(0.0, time.time() - each.since)
    ago = f"{passed_s / _DAY_S:.1f} days" if passed_s > _DAY_S else f"{passed_s / _HOUR_S:.1f} hours"
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(each.since))} ({ago})"
