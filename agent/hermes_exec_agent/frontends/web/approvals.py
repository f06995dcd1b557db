"""Questions that wait for a person: of runs of ``hermes-exec serve``, of messengers, and of proposed jobs."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from hermes_exec.errors import HermesError, UsageError

if TYPE_CHECKING:
    from hermes_exec.config.secrets import Secret

_LIMIT_S = 10.0
_LIST_S = 3.0
"""Seconds for the list, which the proposed jobs wait for."""
_LARGEST = 1 << 20
_UNIX = "unix:"


class NoAnswer(HermesError):
    """The server did not answer a request, or sent no JSON."""


class ServedRuns:
    """The runs of a server of the agent, by its API."""

    def __init__(self, address: str, token: Secret | None) -> None:
        """``address`` is a URL, or ``unix:PATH``."""
        self._path = address.removeprefix(_UNIX) if address.startswith(_UNIX) else ""
        self._base = "http://localhost" if self._path else address.rstrip("/").removesuffix("/v1")
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def list(self) -> list[dict[str, Any]]:
        """Return the questions that wait.

        Raises:
            HermesError: the server cannot be reached, or refuses.
        """
        answer = await self._request("GET", "/v1/approvals")
        found: Any = answer.get("data")
        if not isinstance(found, list):
            raise HermesError("the server of the agent sent an invalid list of questions")
        return [each for each in found if isinstance(each, dict)]  # pyright: ignore[reportUnknownVariableType]  it is JSON

    async def answer(self, run: str, approval: str, *, allow: bool) -> None:
        """Answer a question; it is asked once, and a second answer is refused.

        Raises:
            HermesError: the server cannot be reached, or the question is closed.
        """
        if not (run.startswith("run_") and run[4:].isalnum()):
            raise UsageError("there is no such run")
        choice = {"choice": "once" if allow else "deny", "approval_id": approval}
        try:
            await self._request("POST", f"/v1/runs/{run}/approval", choice)
        except NoAnswer as error:
            raise HermesError(f"it is not known whether your answer arrived: {error}", remedy="look again") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if self._session is None:
            connector = aiohttp.UnixConnector(self._path) if self._path else None
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        headers = {"Authorization": f"Bearer {self._token.reveal()}"} if self._token else {}
        limit = aiohttp.ClientTimeout(total=_LIST_S if body is None else _LIMIT_S)
        try:
            async with self._session.request(
                method, self._base + path, json=body, headers=headers, allow_redirects=False, timeout=limit
            ) as response:
                record: Any = json.loads(await _read_bounded(response))
                if response.status == 200 and isinstance(record, dict):
                    return record  # pyright: ignore[reportUnknownVariableType]  it is JSON
                raise HermesError(f"the server of the agent refused: {_find_reason(record, response.status)}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            what = str(error) or type(error).__name__
            raise NoAnswer(f"the server of the agent does not answer: {what}", remedy="hermes-exec serve") from None


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for piece in response.content.iter_any():
        data += piece
        if len(data) > _LARGEST:
            raise HermesError(f"the server of the agent sent more than {_LARGEST >> 20} MiB")
    return bytes(data)


def _find_reason(record: Any, status: int) -> str:
    try:
        return f"{record['error']['message']} (status {status})"
    except (TypeError, KeyError):
        return f"status {status}"


def list_chat_questions() -> list[dict[str, Any]]:
    """Return what turns of the running gateway ask in messengers; none if it does not run."""
    from hermes_exec_agent.frontends.gateway.core import is_gateway_running
    from hermes_exec_agent.frontends.gateway.database import gateway_file
    from hermes_exec_agent.frontends.gateway.question_board import list_questions
    from hermes_exec_agent.frontends.gateway.store import Store

    path = gateway_file(os.environ)
    if not path.exists() or not is_gateway_running(path):
        return []
    with Store(path) as store:
        return list_questions(store)


def answer_chat_question(id: str, answer: bool | str) -> None:  # noqa: FBT001  the answer is yes or no, or a text
    """Answer a question that a turn of the owner asks in a messenger.

    Raises:
        UsageError: it is closed, or is for another person.
        HermesError: the gateway did not take the answer in time.
    """
    from hermes_exec_agent.frontends.gateway.core import is_gateway_running
    from hermes_exec_agent.frontends.gateway.database import gateway_file
    from hermes_exec_agent.frontends.gateway.question_board import answer_question
    from hermes_exec_agent.frontends.gateway.store import Store

    path = gateway_file(os.environ)
    if not path.exists() or not is_gateway_running(path):
        raise UsageError("the gateway does not run, so nothing asks", remedy="hermes-exec gateway run")
    with Store(path) as store:
        answer_question(store, id, answer)


def list_waiting_jobs() -> list[dict[str, Any]]:
    """Return the scheduled jobs that an agent proposed, and that wait for a person, with all that they do."""
    from hermes_exec_agent.scheduler.job import describe_job
    from hermes_exec_agent.scheduler.jobs import list_jobs
    from hermes_exec_agent.scheduler.storage import CronStore

    with CronStore.of_user() as store:
        return [
            {"id": job.id, "name": job.name, "revision": job.revision, "facts": describe_job(job)}
            for job in list_jobs(store)
            if job.state == "waiting"
        ]


def decide_job(id: int, revision: int, *, allow: bool) -> None:
    """Accept or remove a scheduled job that an agent proposed; another one may have its name by now.

    Raises:
        UsageError: it does not wait, or was changed since it was shown.
    """
    from hermes_exec_agent.scheduler.jobs import approve_job, find_job, remove_job
    from hermes_exec_agent.scheduler.storage import CronStore

    with CronStore.of_user() as store:
        job = find_job(store, str(id))
        if job.revision != revision or job.state != "waiting":
            raise UsageError(f"the job {job.name!r} was changed meanwhile", remedy="read it again, and decide again")
        if allow:
            approve_job(store, job, time.time())
        else:
            remove_job(store, job, time.time())
