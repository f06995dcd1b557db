"""Questions of a running turn to its person: approvals by buttons or words, and questions with a text as the answer.

A question is answered once, within ten minutes, by the person whose turn asks. It ends with its turn, so that an
approval never outlives the act that it was for.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import HermesError, Unsupported
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.frontends.gateway.adapter import Choice
from hermes_exec_agent.frontends.gateway.records import read_uptime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

LIMIT_S = 600.0
"""Seconds in which a question may be answered."""
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


@dataclass(slots=True, eq=False)
class _Question:
    tool: str
    summary: str
    choices: Sequence[str] | None
    """Of a question with a text as the answer; None if it is an approval."""
    until: float
    """The last moment, by a clock that runs while the machine sleeps."""
    answer: asyncio.Future[str] = field(repr=False)
    is_elsewhere: bool = False
    """Whether it was answered in another place than the chat."""

    @property
    def is_approval(self) -> bool:
        """Whether it is answered by yes or no."""
        return self.choices is None

    @property
    def title(self) -> str:
        """What it is about, in a line."""
        return quote_code(f"{self.tool}: {self.summary}" if self.is_approval else self.summary, is_inline=True)


class Board(Protocol):
    """Lets a question be answered in another place, too."""

    def add(
        self, call: tuple[str, str], until: float, decide: Callable[[str], bool], choices: Sequence[str] | None
    ) -> str:
        """Record a question, and return its id; empty if it is answered in the chat alone."""
        ...

    def end(self, id: str, outcome: str) -> None:
        """Record how it ended."""
        ...


class ChatPerson:
    """One person in a chat; implements `hermes_exec_agent.tools.tool.Person`."""

    def __init__(
        self,
        *,
        is_guest: bool,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = read_uptime,
        board: Board | None = None,
    ) -> None:
        """``clock`` runs while the machine sleeps, so that no old button is valid when it wakes."""
        self.is_guest = is_guest
        self._board = board
        self._clock = clock
        self._limit_s = limit_s
        self._questions: dict[str, _Question] = {}
        self._turn = asyncio.Lock()  # tool calls run concurrently, questions do not
        self.say: Callable[[str, Sequence[Choice]], Awaitable[None]] | None = None
        """Sends a text with choices to the chat of the running turn; None while no turn runs."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:  # noqa: ARG002  no lasting approvals in a chat
        """Ask whether a call may run. No answer within ten minutes means no.

        Raises:
            Unsupported: the person is a guest, or no turn runs.
        """
        if self.is_guest:
            raise Unsupported("a guest approves nothing", remedy="do without it, and say so")
        async with self._turn:
            token = "".join(secrets.choice(_LETTERS) for _ in range(4))
            text = (
                f"May this run?\n\n{quote_code(f'{tool}: {summary}')}\n\n"
                f"/approve {token} or /deny {token}, within {self._limit_s / 60:g} minutes"
            )
            choices = (Choice("Approve", f"/approve {token}"), Choice("Deny", f"/deny {token}"))
            return await self._ask(token, text, choices, self._create(tool, summary)) == "yes"

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        """Ask a question; the next message of the person is the answer.

        Raises:
            Unsupported: no answer came within ten minutes, or no turn runs.
        """
        async with self._turn:
            listed = "".join(f"\n{number}. {choice}" for number, choice in enumerate(choices, 1))
            answer = await self._ask("", f"{question}\n{listed}", (), self._create("clarify", question, choices))
            if not answer:
                raise Unsupported("the person did not answer", remedy="decide with the known facts, and say so")
            number = parse_number(answer, 1, len(choices))
            return answer if number is None else choices[number - 1]

    def _create(self, tool: str, summary: str, choices: Sequence[str] | None = None) -> _Question:
        answer = asyncio.get_running_loop().create_future()
        return _Question(tool, summary, choices, self._clock() + self._limit_s, answer)

    async def _ask(self, token: str, text: str, buttons: Sequence[Choice], question: _Question) -> str:
        """Ask in the chat and on the board, and return the answer; empty if none came in time."""
        if self.say is None:
            raise Unsupported("no user can be asked", remedy="decide with the known facts, and say so")
        id = ""
        if self._board is not None:
            call, decide = (question.tool, question.summary), partial(self._take_elsewhere, question)
            id = await asyncio.to_thread(self._board.add, call, question.until, decide, question.choices)
        self._questions[token] = question
        try:
            await self.say(text, buttons)
            async with asyncio.timeout(self._limit_s):
                answer = await question.answer
            if question.is_elsewhere:
                done = {"yes": "Approved", "no": "Denied"}[answer] if question.is_approval else "Answered"
                shown = "" if question.is_approval else f"\n\n{quote_code(answer)}"
                await self.say(f"{done} in the web view: {question.title}{shown}", ())
        except TimeoutError:
            denied = ", so it was denied" if question.is_approval else ""
            await self.say(f"No answer came in time{denied}.", ())
            return ""
        else:
            return answer
        finally:
            self._questions.pop(token, None)
            if id:
                await shield_to_completion(self._end_on_board(id, question))

    async def _end_on_board(self, id: str, question: _Question) -> None:
        is_answered = question.answer.done() and not question.answer.cancelled()
        outcome = ("elsewhere" if question.is_elsewhere else "chat") if is_answered else "none"
        if self._board is not None:
            with contextlib.suppress(HermesError):  # the turn goes on; the row is refused as one that ended
                await asyncio.to_thread(self._board.end, id, outcome)

    def _take_elsewhere(self, question: _Question, answer: str) -> bool:
        """Take an answer that was not given in the chat; return whether it counts."""
        if question not in self._questions.values() or not self._is_open(question):
            return False
        question.is_elsewhere = True
        question.answer.set_result(answer)
        return True

    def decide(self, token: str, *, allow: bool) -> str:
        """Answer an approval, and return a reply for the person.

        A token is always needed, because a newer question may be open than the one that the person read.
        """
        question = self._questions.get(token.upper())
        if not token and self.pending:
            listed = "\n".join(f"- {quote_code(each, is_inline=True)}" for each in self.pending)
            return f"Which one? Write its code, as in {'/approve' if allow else '/deny'} CODE.\n\n{listed}"
        if question is None or not question.is_approval or not self._is_open(question):
            return "There is no such open question. Each is answered once, within ten minutes, by the person it is for."
        question.answer.set_result("yes" if allow else "no")
        return f"{'Approved' if allow else 'Denied'}: {question.title}"

    def reply(self, text: str) -> bool:
        """Give a text as the answer to an open question that is not an approval; return whether there was one."""
        question = self._questions.get("")
        if question is None or not self._is_open(question):
            return False
        question.answer.set_result(text)
        return True

    @property
    def is_awaiting(self) -> bool:
        """Whether a question is open that a text answers."""
        question = self._questions.get("")
        return question is not None and self._is_open(question)

    def _is_open(self, question: _Question) -> bool:
        return not question.answer.done() and self._clock() <= question.until

    @property
    def pending(self) -> list[str]:
        """The open approvals, each with what it is for."""
        return [f"{token}: {each.tool}: {each.summary}" for token, each in self._questions.items() if each.is_approval]


def quote_code(text: str, *, is_inline: bool = False) -> str:
    """Return untrusted text as Markdown code, which nothing in it can end."""
    longest = max((len(each) for each in re.findall(r"`+", text)), default=0)
    if is_inline:
        fence, flat = "`" * (longest + 1), " ".join(text.split())
        return f"{fence} {flat} {fence}" if longest else f"`{flat}`"
    fence = "`" * max(longest + 1, 3)
    return f"{fence}\n{text}\n{fence}"
