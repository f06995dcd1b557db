"""Each cloud of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs import clouds

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.rigs.clouds import Cloud


@pytest.fixture(params=[clouds.modal_cloud, clouds.daytona_cloud], ids=["modal", "daytona"])
def cloud(request: pytest.FixtureRequest) -> Generator[Cloud]:
    yield from request.param()
