"""The real services, for a maintainer with an account: ``HERMES_EXEC_LIVE=1 ./dev test -m live tests/live``.

A key in the environment alone must not spend money, so both are needed. Each module deletes before and after what
has the tag of these tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOWED = os.environ.get("HERMES_EXEC_LIVE")  # looked at before the suite drops every such variable
TAGS = {"hermes_exec.live": "yes"}
CREDENTIALS = {"daytona": ("DAYTONA_API_KEY",), "modal": ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")}


@pytest.fixture(scope="session")
def live() -> Callable[[str], dict[str, Any]]:
    """``live("daytona")``: what a profile of these tests has to say, or a skip with its reason."""

    def options(kind: str) -> dict[str, Any]:
        if ALLOWED != "1":
            pytest.skip("it spends money, so it needs HERMES_EXEC_LIVE=1")
        if missing := [name for name in CREDENTIALS[kind] if not os.environ.get(name)]:
            pytest.skip(f"needs {', '.join(missing)}")
        return {"tags": TAGS, "lease_s": 300.0, "max_hours": 1.0}

    return options
