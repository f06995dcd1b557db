from __future__ import annotations
from contextlib import asynccontextmanager
from typing import Any
import pytest
from tests.rigs.signal_api import run_signal
from tests.rigs.gateway_conformance import GatewayConformance

class TestSignal(GatewayConformance):
    @pytest.fixture
    def rig(self) -> Any:
        @asynccontextmanager
        async def start():
            async with run_signal() as rig:
                yield rig

        return start
