"""Whatever goes wrong at Modal, at any moment: nothing hangs, nothing is lost or done twice, nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs.bounded import within
from tests.rigs.breadth import leave_out
from tests.rigs.storm import Storm

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.modal.conftest import Opened
    from tests.rigs.apart import Apart

leave_out("takes long")

METHODS = ["TaskExecStart", "TaskExecStdinWrite", "TaskExecStdinWriteStream", "TaskExecStdioRead", "TaskExecWait"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(1, 7))
def test_after_any_storm_the_terminal_is_as_good_as_new(
    server: Apart, opened: Opened, tmp_path: Path, seed: int
) -> None:
    async def disturb(chance: random.Random) -> None:
        if chance.random() < 0.2:
            server.call("cut", reset=chance.random() < 0.5)
            return
        method = chance.choice(METHODS)
        when = chance.choice(["before", "after", *(["during"] if method == "TaskExecStdioRead" else [])])
        how = chance.choice(["status", "lost", "fin", "rst"])
        server.call("fail", method, how=how, when=when, skip=chance.randrange(3))

    async def storms() -> None:
        async with opened() as terminal, await terminal.session() as session:
            storm = Storm(terminal, session, tmp_path, "/srv", seed, disturb, lambda: server.call("heal"))
            await storm.weather(5)

    within(200)(storms())
