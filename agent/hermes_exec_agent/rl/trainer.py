"""The trainer, behind the HTTP server ``run-api`` of Atropos.

The server has no way to find a group again, so a post without an answer is never repeated. It accepts environments
once its trainer has asked for a first batch, and forgets all of them when it is started again.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.extras import require
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    import httpx2

_LIMIT_S = 30.0
_POST_S = 120.0
_MORE_S = 1.0
"""Seconds beyond the limit of each part of an answer, after which the whole of it is given up."""
_PAUSE_S = 2.0
_BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that may answer later."""
_LARGEST = 1 << 20
"""Bytes of the largest answer that is read."""
_REASON = 200


class TrainerError(HermesError):
    """The trainer's server does not answer, or not as Atropos does."""


class Unanswered(HermesError):
    """A group was sent, and no answer came: the trainer may have it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The server's answer about this environment and its trainer."""

    env_id: int
    batch_size: int
    max_tokens: int
    """Tokens of the longest sequence that the trainer takes."""


class TrainerClient:
    """Speaks with one server. Use it with ``async with``."""

    def __init__(self, url: str, *, wait_s: float, say: Callable[[str], None]) -> None:
        """``wait_s`` bounds each wait for the trainer; ``say`` gets a line when one begins.

        Raises:
            UsageError: ``url`` is not an address.
            MissingExtra: the extra ``rl`` is not installed.
        """
        require("rl", "groups for a trainer")
        if not _is_address(url):
            shown = "" if "@" in url else f" {to_printable(url)}"  # a user may have a password
            raise UsageError(f"--trainer{shown}: it is not an address", remedy="http://127.0.0.1:8000")
        self._url = url.rstrip("/")
        self._wait_s = wait_s
        self._say = say
        self._client: httpx2.AsyncClient | None = None
        self._registration: Registration | None = None
        self._is_waiting = False
        """Whether the person was notified that the server does not answer."""

    async def __aenter__(self) -> Self:
        import httpx2

        self._client = httpx2.AsyncClient(timeout=_LIMIT_S, trust_env=False, follow_redirects=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def register(self, name: str, group_size: int, weight: float) -> Registration:
        """Wait for the trainer's first request for a batch, and register this environment.

        Raises:
            TrainerError: there is no trainer within the limit, or the server is another one.
        """
        give_up = time.monotonic() + self._wait_s
        is_noted = False
        while True:
            info = await self._ask("GET", "/info", give_up)
            max_tokens, batch = info.get("max_token_len"), info.get("batch_size")
            if isinstance(max_tokens, int) and isinstance(batch, int) and min(max_tokens, batch) > 0:
                fields = {
                    "max_token_length": max_tokens, "desired_name": name, "weight": weight, "group_size": group_size
                }  # fmt: skip
                found = await self._ask("POST", "/register-env", give_up, fields)
                if found.get("status") == "success" and isinstance(found.get("env_id"), int):
                    self._registration = Registration(found["env_id"], batch, max_tokens)
                    return self._registration
            if time.monotonic() > give_up:
                raise TrainerError(
                    f"{to_printable(self._url)}: no trainer asked for a batch within {self._wait_s:g} s",
                    remedy="start the trainer, or raise --trainer-wait",
                )
            if not is_noted:
                is_noted = True
                self._say("waiting for the trainer's first request for a batch")
            await asyncio.sleep(_PAUSE_S)

    async def wait_for_space(self, ahead: int) -> None:
        """Wait until fewer than ``ahead`` groups of this environment are in the trainer's queue.

        Raises:
            TrainerError: it took none within the limit, or the server was started again.
        """
        before: tuple[object, object] | None = None
        changed = time.monotonic()
        while True:
            status = await self._ask("GET", "/status-env", time.monotonic() + self._wait_s, self._identify())
            queued, step = status.get("self_queue_size"), status.get("current_step")
            if not isinstance(queued, int):
                raise TrainerError(
                    f"{to_printable(self._url)}: the server no longer knows this environment",
                    remedy="it was started again; start this environment again, too",
                )
            if queued < ahead:
                return
            if before != (queued, step):
                before, changed = (queued, step), time.monotonic()
            if time.monotonic() - changed > self._wait_s:
                raise TrainerError(
                    f"{to_printable(self._url)}: the trainer took no group within {self._wait_s:g} s",
                    remedy="look at the trainer; groups that were not posted are in the folder's rounds",
                )
            await asyncio.sleep(_PAUSE_S)

    def _identify(self) -> dict[str, int]:
        if self._registration is None:
            raise UsageError("the environment is not registered", remedy="register first")
        return {"env_id": self._registration.env_id}

    async def post(self, group: Mapping[str, Any]) -> None:
        """Post a group, once.

        Raises:
            Unanswered: it was sent, and the server may have it.
            TrainerError: the server refused it, or could not be reached; it does not have it.
        """
        import httpx2

        body = {**group, **self._identify()}
        try:
            code, answer = await self._send("POST", "/scored_data", body, _POST_S)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise TrainerError(f"{to_printable(self._url)}: no connection: {_describe(error)}") from error
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise Unanswered(f"no answer to a group: {_describe(error)}") from error
        if code >= 500 or (code == 200 and answer is None):
            raise Unanswered(f"the server answered a group with {code}")
        if code != 200 or answer is None or answer.get("status") != "received":
            raise TrainerError(f"the server did not take a group: {code} {flatten(json.dumps(answer), _REASON)}")

    async def leave(self) -> None:
        """Tell the server that this environment sends no more groups; an error is ignored."""
        import httpx2

        if self._registration is not None:
            try:
                await self._send("POST", "/disconnect-env", self._identify(), _LIMIT_S)
            except (httpx2.HTTPError, httpx2.StreamError):
                return

    async def _ask(
        self, method: str, path: str, give_up: float, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Ask until there is an answer: the server may not have started yet, or may be busy.

        Only requests that may be repeated are asked like this. An environment that is registered twice has no groups.
        """
        import httpx2

        while True:
            try:
                code, answer = await self._ask_once(method, path, body)
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                if time.monotonic() > give_up:
                    raise TrainerError(
                        f"{to_printable(self._url)}: no answer: {_describe(error)}", remedy="start run-api of Atropos"
                    ) from error
                if not self._is_waiting:
                    self._is_waiting = True
                    self._say(f"waiting for the trainer's server at {to_printable(self._url)}: {_describe(error)}")
                await asyncio.sleep(_PAUSE_S)
                continue
            self._is_waiting = False
            if code in (404, 405, 422):
                raise TrainerError(
                    f"{to_printable(self._url)}{path}: the server answered {code}", remedy="the address of run-api"
                )
            return answer or {}

    async def _ask_once(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, dict[str, Any] | None]:
        """Send as `_send` does; a server that is busy counts as unreachable."""
        import httpx2

        code, answer = await self._send(method, path, body, _LIMIT_S)
        if code in _BUSY:
            raise httpx2.HTTPError(f"HTTP status {code}")
        return code, answer

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, limit_s: float
    ) -> tuple[int, dict[str, Any] | None]:
        """Send a request, and return the status with the JSON object of the answer, if it is one.

        Raises:
            httpx2.HTTPError, httpx2.StreamError: there is no whole answer within the limit.
        """
        import httpx2

        if self._client is None:
            raise UsageError("the client is not open", remedy="async with")
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"content-type": "application/json"} if content else {}
        data = b""
        stream = self._client.stream(method, f"{self._url}{path}", content=content, headers=headers, timeout=limit_s)
        try:
            async with asyncio.timeout(limit_s + _MORE_S), stream as response:
                async for piece in response.aiter_bytes():
                    data += piece
                    if len(data) > _LARGEST:
                        return response.status_code, None
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no whole answer within {limit_s:g} s") from None
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            return response.status_code, None
        return response.status_code, cast("dict[str, Any]", answer) if isinstance(answer, dict) else None


def _is_address(url: str) -> bool:
    """Whether a text is the address of a server, without a user."""
    import httpx2

    try:
        parts = urlsplit(url)
        _ = parts.port, httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL):
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None


def _describe(error: Exception) -> str:
    return flatten(str(error) or type(error).__name__, _REASON)
