from __future__ import annotations
from contextlib import asynccontextmanager
from typing import Any
import pytest
from tests.rigs.discord_api import run_discord
from tests.rigs.gateway_conformance import GatewayConformance

class TestDiscord(GatewayConformance):
    @pytest.fixture
    def rig(self) -> Any:
        @asynccontextmanager
        async def start():
            async with run_discord() as rig:
                yield rig

        return start
