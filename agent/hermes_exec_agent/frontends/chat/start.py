"""Start a chat from its arguments: check them, show the prompt, and load what the chat needs."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from hermes_exec.config.defaults import read_sections
from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.chat.first_prompt import show_first_prompt
from hermes_exec_agent.frontends.chat.question import read_question
from hermes_exec_agent.memory.persons import choose_participant
from hermes_exec_agent.models.protocol import refuse_blind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.frontends.chat.arguments import ChatArguments
    from hermes_exec_agent.frontends.chat.replay import Replay
    from hermes_exec_agent.models import Models


async def start_chat(
    asked: ChatArguments, say: Callable[[HermesError], None], *, cwd: str | None = None, secrets: Sequence[Secret] = ()
) -> int:
    """Run a chat and return its exit code.

    ``say`` reports errors after which the chat continues. ``cwd`` is the folder of the target to start in. The
    ``secrets`` of the target are removed from the record.

    Raises:
        NoModel: there is no model.
        HermesError: the arguments are wrong, or the target or the model failed to answer the question.
    """
    if asked.guest and asked.person is not None:
        raise UsageError("--guest excludes --person", remedy="leave one of them out")
    settings = read_sections()
    participant = choose_participant(settings, asked.person, guest=asked.guest)
    replay = _replay(asked)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    models = _models(asked, replay)
    plays = replay is not None and bool(replay.requests) and asked.query is None
    query = None if plays else read_question(asked)
    if query is not None and query.images:
        refuse_blind(models.main)
    with show_first_prompt() if at_terminal and query is None and not plays else nullcontext():
        # These imports take longer than the prompt, which the user waits for.
        from hermes_exec_agent.frontends.chat.run import ChatRun, run_chat

        proposes = settings.learning.proposals
        run = ChatRun(asked, models, replay, participant, proposes, at_terminal, say, cwd, secrets)
        return await run_chat(run, query)


def _replay(asked: ChatArguments) -> Replay | None:
    if asked.replay is None:
        return None
    if asked.model is not None:
        raise UsageError("--replay excludes --model", remedy="leave one of them out")
    from hermes_exec_agent.frontends.chat.replay import read_replay

    return read_replay(asked.replay)


def _models(asked: ChatArguments, replay: Replay | None) -> Models:
    from hermes_exec_agent.models import Models, load_models

    if replay is not None:
        return Models(replay.model)
    models = load_models()
    return models if asked.model is None else models.with_main(asked.model)
