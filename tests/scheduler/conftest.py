from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.scheduler.storage import CronStore
from tests.rigs.scheduling import Desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with CronStore(tmp_path / "state" / "cron.sqlite") as store:
        yield Desk(store)
