"""One conversation at a time, whose turns a person can interrupt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.chat.keyboard import Keyboard

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType

    from hermes_exec_agent.frontends.chat.display import TurnDisplay
    from hermes_exec_agent.models import Models
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.tools.tool import Approvals, Person

INTERRUPTED = 130
_CURSOR = b"\x1b[?25h"
"""Shows it again, which what moves on the screen has hidden."""


class ChatSession:
    """A place, models and a log, with the conversation that is held in them.

    Opening a place takes time, so it happens beside what the person does, and a failure of it is the first turn's.
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
        mends: bool = True,
        unattended: bool = False,
    ) -> None:
        """Hold conversations so.

        Args:
            target: the place.
            models: who thinks.
            log: where everything is recorded.
            display: shows what happens.
            person: is asked.
            approvals: what is done without being asked.
            cases: what skills that are written meanwhile have to hold, each as JSON.
            cwd: where to start, in the place.
            budget: how many replies of a model a turn may take.
            mends: whether a skill that fails in use is improved.
            unattended: whether nobody watches, so that guardrails stop what gets nowhere.
        """
        self.target = target
        self.models = models
        self.log = log
        self.display = display
        self._person = person
        self._approvals = approvals
        self._cwd = cwd
        self._cases = cases
        self._budget = budget
        self._mends = mends
        self._unattended = unattended
        self._opening: asyncio.Task[Conversation] | None = None
        self._resume, self._fork = "", False
        self._stack = AsyncExitStack()

    def open_soon(self, resume: str = "", *, fork: bool = False) -> asyncio.Task[Conversation]:
        """Begin to open the place, for a new conversation, or for the one with the id ``resume`` or a branch of it."""
        self._resume, self._fork = resume, fork
        opening = self._opening = asyncio.create_task(self._open(resume, fork=fork))
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # told by the first turn
        return opening

    async def conversation(self) -> Conversation:
        """The conversation, once it is open.

        Raises:
            HermesError: it cannot be opened; the next call tries again.
        """
        opening = self._opening or self.open_soon(self._resume, fork=self._fork)
        try:
            return await opening
        except BaseException:
            self._opening = None
            raise

    @property
    def current(self) -> Conversation | None:
        """The conversation, if it is open by now."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception():
            return None
        return opening.result()

    async def choose(self, model: str) -> str:
        """Go on with the model of that name, in this conversation and in those that follow; gives what it is called.

        Raises:
            HermesError: there is none, or the place cannot be opened.
        """
        models = self.models.with_main(model)  # first, so that a mistake opens nothing
        (await self.conversation()).set_model(model)
        self.models = models
        return models.main.name

    async def switch(self, resume: str = "", *, fork: bool = False) -> None:
        """Leave this conversation for a new one, or for the one with the id ``resume`` or a branch of it."""
        await self.close()
        self.open_soon(resume, fork=fork)

    async def turn(self, request: str, *, interruptible: bool = False) -> Answer | None:
        """Say something and hear the answer; the display shows what happens meanwhile.

        With ``interruptible`` Ctrl-C ends the turn and not the program: the answer's outcome tells it, and where it had
        not begun because the place was still being opened, there is None.

        Raises:
            HermesError: the place or the model failed; it is recorded.
        """
        asked = stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            if (conversation := self.current) is not None and asked:
                conversation.interrupt()
            elif self._opening is not None:
                self._opening.cancel()

        self.display.begin(scripted=self.models.main.scripted)
        try:
            with on_interrupt(stop) if interruptible else _keep_default():
                conversation = await self.conversation()
                if stopped:  # at the very moment at which the place was open
                    return None
                asked = True
                return await conversation.ask(request, self.display.update)
        except asyncio.CancelledError:
            if asked or ((task := asyncio.current_task()) and task.cancelling()):
                raise
            return None
        finally:
            self.display.end()

    async def close(self) -> None:
        """Close the place; the record stays."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def _open(self, resume: str, *, fork: bool) -> Conversation:
        # These take long to import, and the person can type meanwhile.
        from hermes_exec_agent.runtime import Options, open_conversation
        from hermes_exec_policies.gate.cases import Case
        from hermes_exec_policies.gate.verdict import Level

        options = Options(unattended=self._unattended, branch_of=resume if fork else "")
        if self._budget is not None:
            options = replace(options, budget=self._budget)
        cases = [Case.parse(word, source=Level.PERSON) for word in self._cases]
        conversation = await self._stack.enter_async_context(
            open_conversation(
                self.target,
                models=self.models,
                person=self._person,
                log=self.log,
                cwd=self._cwd,
                resume="" if fork else resume,
                cases=cases,
                repair_skills=self._mends,
                options=options,
                approvals=self._approvals,
                tell=self.display.print_line,
            )
        )
        # Not before, as two threads that import the same packages get into each other's way. Nobody waits for this one:
        # a program that ends meanwhile ends at once.
        threading.Thread(target=self.models.prepare, name="prepare the model", daemon=True).start()
        return conversation


@contextmanager
def _keep_default() -> Generator[None]:
    yield


@contextmanager
def on_interrupt(stop: Callable[[], object]) -> Generator[None]:
    """Ctrl-C calls ``stop``, on the loop; the third one leaves the program at once."""
    loop = asyncio.get_running_loop()
    pressed = 0

    def handle(_: int, __: FrameType | None) -> None:
        nonlocal pressed
        pressed += 1
        if pressed == 1:
            loop.call_soon_threadsafe(stop)
        elif pressed == 2:
            print("\nstill ending what runs; Ctrl-C once more leaves at once", file=sys.stderr)
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
