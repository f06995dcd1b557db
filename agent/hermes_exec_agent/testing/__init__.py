"""The conformance suite of the gateway's adapters, which an adapter of another distribution joins with a few lines.

    class TestMine(GatewayConformance):
        @pytest.fixture
        def rig(self):
            return open_my_rig

``open_my_rig()`` is an asynchronous context manager that yields a `PlatformRig`. docs/gateway.md describes how to write
one. The suite needs pytest.
"""

from __future__ import annotations

import pytest

_MODULES = ("gateway_session", "gateway_conformance", "gateway_media")
pytest.register_assert_rewrite(*(f"hermes_exec_agent.testing.{each}" for each in _MODULES))

from hermes_exec_agent.testing.gateway_conformance import GatewayConformance  # noqa: E402  failures show values
from hermes_exec_agent.testing.gateway_media import EditConformance, FileConformance  # noqa: E402  likewise
from hermes_exec_agent.testing.gateway_session import (  # noqa: E402  likewise
    EditRig,
    FileRig,
    Growing,
    Held,
    PlatformRig,
    Session,
    behaviour,
    until,
)

__all__ = [
    "EditConformance",
    "EditRig",
    "FileConformance",
    "FileRig",
    "GatewayConformance",
    "Growing",
    "Held",
    "PlatformRig",
    "Session",
    "behaviour",
    "until",
]
