"""A chat session: one conversation at a time, with turns that the user can interrupt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec._async import cancel_and_wait
from hermes_exec_agent.frontends.chat.keyboard import Keyboard

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType

    from hermes_exec_agent.frontends.chat.display import TurnDisplay
    from hermes_exec_agent.learning.checks import CheckResult
    from hermes_exec_agent.memory.persons import Participant
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Approvals, Person
    from hermes_exec_policies.gate.cases import Case

INTERRUPTED = 130
_CURSOR = b"\x1b[?2004l\x1b[?25h"
"""Ends the marks of pasted text, and shows the cursor again, which animations hide."""


class ChatSession:
    """A target, models and a log, with the current conversation.

    The target opens in the background, and the first turn raises an error of that.
    """

    def __init__(  # noqa: PLR0913  each is a choice of its own
        self,
        target: str | None,
        *,
        models: Models,
        log: EventLog,
        display: TurnDisplay,
        person: Person,
        approvals: Approvals,
        cases: Sequence[str] = (),
        cwd: str | None = None,
        budget: int | None = None,
        most_cost: float | None = None,
        mends: bool = True,
        unattended: bool = False,
        participant: Participant | None = None,
        check: str = "",
    ) -> None:
        """Create a session.

        Args:
            target: the target in which the agent works.
            models: the models to ask.
            log: the log that records everything.
            display: the display of turns.
            person: answers questions of tools.
            approvals: the calls that are approved without a question.
            cases: expected results of skills that the agent writes, each as JSON.
            cwd: the folder of the target to start in.
            budget: the limit of replies of the model in one turn.
            most_cost: the limit of US dollars of one turn.
            mends: whether a skill that fails in use is repaired.
            unattended: whether no user watches, so that guardrails stop turns without progress.
            participant: the person of its conversations; if left out, each keeps its own.
            check: the user's command that checks each answer; empty without one.
        """
        self.target = target
        self.models = models
        self.log = log
        self.display = display
        self.person = person
        self._approvals = approvals
        self._cwd = cwd
        self._cases = cases
        self._budget = budget
        self._most_cost = most_cost
        self._mends = mends
        self._unattended = unattended
        self.participant = participant
        self.check = check
        self.images: Sequence[Image] = ()
        """Those of the next request."""
        self._opening: asyncio.Task[Conversation] | None = None
        self._resume, self._fork, self._personality = "", False, ""
        self._seen = 0
        """The last event of reviews that `print_news` read."""
        self._stack = AsyncExitStack()
        self._lines: list[str] = []
        """Lines of the conversation that wait for the user to have typed a request."""
        self._is_typing = True

    def open_soon(self, resume: str = "", *, fork: bool = False) -> asyncio.Task[Conversation]:
        """Start to open a new conversation, the conversation ``resume``, or with ``fork`` a new one from its record."""
        self._resume, self._fork = resume, fork
        opening = self._opening = asyncio.create_task(self._open(resume, fork=fork))
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # the first turn raises it
        return opening

    def choose_opening(self, resume: str = "", *, fork: bool = False) -> None:
        """Choose the conversation that `open_chosen` opens, as for `open_soon`."""
        self._resume, self._fork = resume, fork

    def open_chosen(self) -> asyncio.Task[Conversation]:
        """Start to open the chosen conversation, unless one is open or opens."""
        return self._opening or self.open_soon(self._resume, fork=self._fork)

    async def conversation(self) -> Conversation:
        """Return the conversation, once it is open.

        Raises:
            HermesError: it cannot be opened; the next call tries again.
        """
        opening = self.open_chosen()
        try:
            return await opening
        except BaseException:
            self._opening = None
            raise

    @property
    def current(self) -> Conversation | None:
        """The conversation, if it is open."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception():
            return None
        return opening.result()

    async def choose(self, model: str) -> str:
        """Use the model of this name from now on, and return the name that it has at its endpoint.

        Raises:
            HermesError: there is no such model, or the target cannot be opened.
        """
        models = self.models.with_main(model)  # first, so that a wrong name opens nothing
        (await self.conversation()).set_model(model)
        self.models = models
        return models.main.name

    async def switch(self, resume: str = "", *, fork: bool = False, personality: str = "") -> None:
        """Close this conversation and open another one, as `open_soon` does; ``personality`` is added to its prompt."""
        self._lines.clear()  # the next conversation has its own
        await self.close()
        self._personality = personality
        self.open_soon(resume, fork=fork)

    async def turn(self, request: str, *, interruptible: bool = False) -> Answer | None:
        """Send a request and return the answer; the display shows the progress.

        With ``interruptible``, Ctrl-C ends the turn instead of the program: the outcome of the answer is then
        ``interrupted``, or the result is None if the conversation was not open yet.

        Raises:
            HermesError: the target or the model failed; the error is recorded.
        """
        asked = stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            if (conversation := self.current) is not None and asked:
                conversation.interrupt()
            elif self._opening is not None:
                self._opening.cancel()

        try:
            with on_interrupt(stop) if interruptible else _keep_default():
                self.display.begin(scripted=self.models.main.scripted)
                conversation = await self.conversation()
                self._print_waiting()
                if stopped:  # at the moment at which the conversation opened
                    return None
                asked = True
                images, self.images = self.images, ()
                return await conversation.ask(request, self.display.update, images=images)
        except asyncio.CancelledError:
            if asked or ((task := asyncio.current_task()) and task.cancelling()):
                raise
            return None
        finally:
            self.display.end()
            self._is_typing = interruptible

    def _tell(self, line: str) -> None:
        """Print a line of the conversation: at once during a turn, and else before the next one, or at the end."""
        if self._is_typing:
            self._lines.append(line)
        else:
            self.display.print_line(line)

    def _print_waiting(self) -> None:
        self._is_typing = False
        lines, self._lines = self._lines, []
        for line in lines:
            self.display.print_line(line)

    async def check_answer(self, *, interruptible: bool = False) -> CheckResult | None:
        """Run the user's check of the latest answer, and show its result in one line; None without a check.

        With ``interruptible``, Ctrl-C ends the check instead of the program: the result is None, too.

        Raises:
            HermesError: the result could not be recorded.
        """
        if not self.check:
            return None
        from hermes_exec.config.load import load_settings
        from hermes_exec_agent.learning.checks import check_task

        conversation, limit_s = await self.conversation(), load_settings().learning.check_timeout_s
        checking = asyncio.ensure_future(
            check_task(conversation.terminal, self.log, conversation.id, self.check, timeout_s=limit_s)
        )
        try:
            with on_interrupt(checking.cancel) if interruptible else _keep_default():
                result = await checking
        except asyncio.CancelledError:
            if not interruptible or ((task := asyncio.current_task()) and task.cancelling()):
                raise
            self.display.print_line("check: interrupted, which proves nothing")
            return None
        self.display.print_line(result.describe())
        return result

    def print_news(self) -> None:
        """Print a line for each review that ended since the last time; nothing without a conversation, or for a guest.

        It reads one number of the log if no review ended.
        """
        conversation = self.current
        if conversation is None or conversation.participant.is_guest or self.log.last("reviews") == self._seen:
            return
        from hermes_exec.errors import HermesError
        from hermes_exec_agent.learning.review_queue import STREAM, take_news

        try:
            news = take_news(self.log, conversation.participant.name)
            self._seen = self.log.last(STREAM)
        except HermesError as error:
            news = [f"reviews: {error}"]
        for line in news:
            self.display.print_line(line)

    async def close(self) -> None:
        """Close the conversation and its target; the record stays."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await cancel_and_wait([opening])
        self._print_waiting()
        stack, self._stack = self._stack, AsyncExitStack()
        try:
            await stack.aclose()
        finally:
            self._is_typing = True

    async def _open(self, resume: str, *, fork: bool) -> Conversation:
        # These imports take long, and the user can type meanwhile.
        from hermes_exec_agent.runtime import Options, open_conversation

        options = Options(unattended=self._unattended, branch_of=resume if fork else "", instructions=self._personality)
        if self._budget is not None:
            options = replace(options, budget=self._budget)
        if self._most_cost is not None:
            options = replace(options, most_cost=self._most_cost)
        conversation = await self._stack.enter_async_context(
            open_conversation(
                self.target,
                models=self.models,
                person=self.person,
                log=self.log,
                cwd=self._cwd,
                resume="" if fork else resume,
                cases=_parse_cases(self._cases),
                repair_skills=self._mends,
                options=options,
                approvals=self._approvals,
                tell=self._tell,
                participant=self.participant,
            )
        )
        # For most targets not earlier, because two threads that import the same packages block each other.
        self.models.start_preparing()
        return conversation


def _parse_cases(words: Sequence[str]) -> list[Case]:
    """Parse a person's test cases for skills, each JSON."""
    if not words:
        return []
    from hermes_exec_policies.gate.cases import Case
    from hermes_exec_policies.gate.verdict import Level

    return [Case.parse(word, source=Level.PERSON) for word in words]


@contextmanager
def _keep_default() -> Generator[None]:
    yield


@contextmanager
def ignore_interrupt() -> Generator[None]:
    """Let Ctrl-C do nothing within the block, but for what handles it there: prompts, turns and commands."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def on_interrupt(stop: Callable[[], object]) -> Generator[None]:
    """Let Ctrl-C call ``stop`` on the loop; the third Ctrl-C exits at once."""
    loop = asyncio.get_running_loop()
    pressed = 0

    def handle(_: int, __: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed == 1:
            loop.call_soon_threadsafe(stop)
        elif pressed == 2:
            print("\nstill stopping the turn; press Ctrl-C again to exit at once", file=sys.stderr)
        else:
            Keyboard.restore()
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), _CURSOR)
            os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
