"""Gateways that are killed: each line on standard input starts one in a child, whose number is printed, as is its end.

``python -m tests.rigs.gateway_kills FOLDER URL`` serves the bot of ``tests.rigs.telegram_api`` at the URL.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.frontends.gateway import delivery
from hermes_exec_agent.frontends.gateway.core import Gateway, hold_gateway
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.frontends.gateway.telegram import TelegramAdapter
from hermes_exec_agent.frontends.gateway.telegram_bot import TelegramSettings
from hermes_exec_agent.frontends.gateway.turns import TurnConfig, Turns
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.protocol import Text
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.testing import Held
from hermes_exec_agent.tools.tool import Approvals
from tests.rigs.telegram_api import TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ANSWER_S = 0.1
WORD_S = 0.2
DRAFT_S = 0.05
"""Between two changes of an answer that is being written; a second outside of these tests."""


class Slow(Held):
    """A model that takes a moment, so that kills meet it in the middle; every third answer comes word by word."""

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Any]:
        async for item in super().stream(*args, **options):
            await asyncio.sleep(ANSWER_S)
            if isinstance(item, Text) and sum(item.text.encode()) % 3 == 0:
                for word in re.findall(r"\S+\s*", item.text):
                    yield Text(word)
                    await asyncio.sleep(WORD_S)
            else:
                yield item


async def serve(folder: Path, url: str) -> None:
    """Run a gateway until it is killed."""
    settings = TelegramSettings(token="env:X", base_url=url, poll_s=1.0, interval_s=0.0, limit_s=5.0)  # type: ignore[arg-type]  # pydantic parses it
    adapter = TelegramAdapter(settings, Secret("token", TOKEN))
    delivery.EDIT_S = DRAFT_S
    path = folder / "gateway.sqlite"
    with hold_gateway(path), Store(path) as store, EventLog(folder / "conversations.sqlite") as log:
        config = TurnConfig("local", "local", Approvals("allow"), str(folder), draft_s=DRAFT_S)
        turns = Turns(store, log, Models(Slow(go=True)), config)
        await Gateway(store, [adapter], turns, log).run()


def main(folder: Path, url: str) -> None:
    """Start children."""
    for name in ("hermes_exec_agent.tools.toolset", "hermes_exec_backends.local", "markdown_it"):
        import_module(name)  # once, for all children
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            asyncio.run(serve(folder, url))
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
