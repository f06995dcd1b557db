"""Checks of ``doctor`` for Daytona: the SDK, the key, the connection, the key's permissions, and the clock.

The requests do not use the SDK, whose import takes seconds, so the result appears at once.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Check
from hermes_exec.errors import HermesError
from hermes_exec_backends._shared.connectivity import find_obstacle
from hermes_exec_backends._shared.doctor import check_clock, check_package
from hermes_exec_backends.daytona.errors import KEYS
from hermes_exec_backends.daytona.service import Account, build_default_profile, endpoint

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.daytona import DaytonaProfile

TESTED = "0.226"
"""The SDK's release line that this is tested with."""
_ANSWER_S = 4.0
_WEEK_S = 7 * 86400.0
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the service: a status, its body, and its clock."""

    status: int
    body: Any
    date: str


class _Here(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: the key may be sent only to the configured service."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that a redirect is handled as an ordinary response."""


async def checks(wanted: DaytonaProfile | None = None) -> list[Check]:
    """Check the service with the account of a profile, or that of the environment, as far as possible."""
    profile = wanted or build_default_profile()
    found = [check_package("daytona", "daytona", tested=TESTED)]
    try:
        account = await asyncio.to_thread(Account.of, profile)
    except HermesError as error:
        return [
            *found,
            Check("key", "missing", _explain_missing_key(error.what.removeprefix("daytona: ")), error.remedy),
        ]
    found.append(Check("key", "ok", f"found in {profile.api_key}"))
    obstacle = await find_obstacle(endpoint(account.api_url))
    if obstacle is not None:
        return [*found, Check("reachable", "missing", f"{account.api_url}: {obstacle.what}", obstacle.remedy)]
    try:
        answer = await asyncio.to_thread(_ask, account, "/api-keys/current")
    except OSError as error:
        why = getattr(error, "reason", error)
        return [
            *found,
            Check("reachable", "missing", f"{account.api_url}: {why}", f"curl -I {account.api_url}; check the proxy"),
        ]
    found += [Check("reachable", "ok", account.api_url), check_clock(answer.date), _check_answer(answer)]
    organization = account.organization or (answer.body.get("organizationId") if answer.status == 200 else None)
    if organization:
        found.append(await asyncio.to_thread(_quota, account, str(organization)))
    return found


def _explain_missing_key(what: str) -> str:
    """Explain why there is no key; names a file of the working directory that seems to contain one but is not read."""
    for name in (".env.local", ".env"):
        try:
            if "DAYTONA_API_KEY" in Path(name).read_text(encoding="utf-8", errors="replace"):
                return f"{what}; {Path(name).absolute()} has one, and files of the working directory are not read"
        except OSError:
            continue
    return what


def _ask(account: Account, path: str) -> Answer:
    """Send one request; raises OSError without a response."""
    request = urllib.request.Request(account.api_url + path, headers={"Authorization": f"Bearer {account.key}"})  # noqa: S310  whatever the profile says is meant
    try:
        with urllib.request.build_opener(_Here).open(request, timeout=_ANSWER_S) as reply:
            return Answer(reply.status, _json(reply.read()), reply.headers.get("Date", ""))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _json(error.read()), error.headers.get("Date", ""))


def _json(data: bytes) -> Any:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]  looked at by name


def _check_answer(answer: Answer) -> Check:
    if answer.status == 200:
        until = str(answer.body.get("expiresAt") or "")
        name = answer.body.get("name", "the key")
        try:
            left_s = datetime.fromisoformat(until).timestamp() - time.time()
        except ValueError:
            return Check("authorised", "ok", f"{name} is accepted")
        if left_s < _WEEK_S:
            return Check("authorised", "warning", f"{name} ends in {max(0.0, left_s) / _DAY_S:.1f} days", KEYS)
        return Check("authorised", "ok", f"{name} is accepted until {until[:10]}")
    said = str(answer.body.get("message") or "")[:200]
    if answer.status in {401, 403}:
        return Check("authorised", "missing", f"the key is refused ({answer.status}): {said}", KEYS)
    return Check("authorised", "missing", f"status {answer.status}: {said}", "see status.app.daytona.io; try again")


def _quota(account: Account, organization: str) -> Check:
    try:
        answer = _ask(account, f"/organizations/{organization}/usage")
    except OSError as error:
        return Check("quota", "warning", f"the service did not answer: {error}")
    regions: list[dict[str, Any]] = answer.body.get("regionUsage") or []
    if answer.status != 200 or not regions:
        return Check("quota", "ok", "the service does not report it for this key")
    words: list[str] = []
    full = False
    for region in regions:
        used, most = region.get("currentCpuUsage", 0), region.get("totalCpuQuota", 0)
        full = full or used >= most
        words.append(f"{used:g} of {most:g} CPU in {region.get('regionId')}")
    if full:
        return Check("quota", "warning", ", ".join(words), "hermes-exec backends --cost")
    return Check("quota", "ok", ", ".join(words))
