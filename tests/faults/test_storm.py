"""Whatever comes over a terminal whose channel breaks: nothing hangs, nothing is lost or done twice or left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.place import link
from tests.rigs.breadth import thorough
from tests.rigs.storm import Storm

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from hermes_exec.testing import SuiteTarget
    from tests.faults.rig import CuttingBackend


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=thorough) for seed in range(3, 13))])
def test_after_any_storm_the_terminal_is_as_good_as_new(
    place: SuiteTarget, backend: CuttingBackend, tmp_path: Path, seed: int
) -> None:
    there = tmp_path / "there"
    there.mkdir()

    async def storms() -> None:
        async with place.fresh() as terminal, await terminal.session() as session:

            async def disturb(chance: random.Random) -> None:
                what = chance.choice(["cut", "cut for a while", "there again"])
                if what == "there again":
                    backend.gate.set()
                    return
                if what == "cut for a while":
                    backend.gate.clear()
                link(terminal).break_connection()

            storm = Storm(terminal, session, tmp_path, str(there), seed, disturb, backend.gate.set)
            await storm.weather(8)

    place.run(storms(), 200)
    assert not list(tmp_path.rglob(".hx-*"))
