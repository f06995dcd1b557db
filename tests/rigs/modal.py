"""The Modal of the tests for those who use it: one server for a test process, with the SDK pointed at it."""

from __future__ import annotations

import atexit
import os
from functools import cache
from typing import Any

from hermes_exec_backends.profiles.modal import ModalProfile
from tests.conftest import require_part
from tests.rigs import cell_root
from tests.rigs.apart import Apart
from tests.rigs.modal_control import TOKEN_ID, TOKEN_SECRET


@cache
def _started(latency_s: float) -> Apart:
    made = Apart("tests.rigs.modal_server:ModalServer", latency_s=latency_s)
    atexit.register(made.close)
    return made


def server(*, latency_s: float = 0.0) -> Apart:
    """The server, to which the SDK in this process speaks from now on; skips, with the reason, where it cannot be."""
    why = cell_root.why_not()
    require_part("bubblewrap", why, usable=not why)
    made = _started(latency_s)
    os.environ["MODAL_SERVER_URL"] = made.call("url")
    os.environ["MODAL_CONFIG_PATH"] = os.devnull
    os.environ["MODAL_TOKEN_ID"], os.environ["MODAL_TOKEN_SECRET"] = TOKEN_ID, TOKEN_SECRET
    return made


def profile(**options: Any) -> ModalProfile:
    """A profile for it."""
    return ModalProfile(**options)
