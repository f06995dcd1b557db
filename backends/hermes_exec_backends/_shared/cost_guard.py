"""The cost guard: requests beyond a profile's limits are refused before anything is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.errors import ConfigError, PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_backends.profiles.cloud import CloudProfile

_HOUR_S = 3600.0


def check_profile(profile: CloudProfile, gpus: Sequence[str]) -> None:
    """Refuse a kind of GPU that the profile does not allow; ``gpus`` are kinds without counts.

    Raises:
        ConfigError: names the kind, and those that are allowed.
    """
    allowed = profile.allowed_gpus
    if allowed is None:
        return
    for kind in gpus:
        if kind.upper() not in {each.upper() for each in allowed}:
            raise ConfigError(
                f"{profile.type}: the cost guard allows no GPU {kind!r} here",
                remedy=f"allowed_gpus has {', '.join(allowed) or 'none'}; add it there if it is meant",
            )


def check_count(profile: CloudProfile, alive: int) -> None:
    """Refuse one more sandbox than the profile allows; ``alive`` is the number of running ones.

    Raises:
        PlaceUnavailable: the limit is reached; nothing was created.
    """
    most = profile.max_sandboxes
    if most is not None and alive >= most:
        raise PlaceUnavailable(
            f"{profile.type}: the cost guard allows {most} sandboxes of this profile, and {alive} are alive",
            remedy="hermes-exec backends --cost shows them; close some, or raise max_sandboxes",
        )


def longest_s(profile: CloudProfile, estimate: float | None) -> float | None:
    """Return the seconds that a sandbox may live in all; None is without limit.

    Args:
        profile: with ``max_hours``, ``most_cost``, both or none.
        estimate: the price in US dollars an hour if the profile has no ``hourly_cost``.

    Raises:
        ConfigError: ``most_cost`` is set, and the price is not known.
    """
    hours = [] if profile.max_hours is None else [profile.max_hours]
    if profile.most_cost is not None:
        price = profile.hourly_cost or estimate
        if not price:
            raise ConfigError(
                f"{profile.type}: most_cost needs a price, and that of this sandbox is not known",
                remedy="hourly_cost in the profile",
            )
        hours.append(profile.most_cost / price)
    return min(hours) * _HOUR_S if hours else None


def check_age(profile: CloudProfile, since: float, now: float, estimate: float | None) -> None:
    """Refuse to start a sandbox that was created at ``since`` and has reached its longest life.

    Raises:
        ConfigError: as ``longest_s``.
        PlaceUnavailable: it is too old; it was not started.
    """
    longest = longest_s(profile, estimate)
    if longest is not None and now - since >= longest:
        raise PlaceUnavailable(
            f"{profile.type}: the cost guard allows {longest / _HOUR_S:.3g} hours, and this sandbox is older",
            remedy="take what you need from it with a profile without max_hours and most_cost, and open a new one",
        )
