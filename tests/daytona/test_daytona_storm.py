"""Whatever goes wrong at Daytona, at any moment: nothing hangs, nothing is lost or done twice, nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs.bounded import within
from tests.rigs.breadth import leave_out
from tests.rigs.daytona_rig import only
from tests.rigs.storm import Storm

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_server import Daytona

leave_out("takes long")

OPERATIONS = ["create_connect_pty", "upload_files", "download_file", "execute_command", "get_sandbox"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(1, 7))
def test_after_any_storm_the_terminal_is_as_good_as_new(
    daytona: Daytona, opened: Opened, tmp_path: Path, seed: int
) -> None:
    async def disturb(chance: random.Random) -> None:
        if chance.random() < 0.3:
            await daytona.also(daytona.cut(only(daytona), chance.choice(["fin", "rst"])))
            return
        operation, when = chance.choice(OPERATIONS), chance.choice(["before", "after"])
        if chance.random() < 0.4:
            daytona.fail(operation, when=when, status=chance.choice([429, 500, 502, 503, 504]))
        else:
            daytona.fail(operation, when=when, drop=chance.choice(["fin", "rst"]))

    async def storms() -> None:
        async with opened() as terminal, await terminal.session() as session:
            storm = Storm(terminal, session, tmp_path, "/srv", seed, disturb, daytona.recover)
            await storm.weather(5)

    within(200)(storms())
