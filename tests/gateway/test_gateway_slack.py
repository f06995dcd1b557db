"""The behaviours of any platform with Slack's library and a server of its protocols, and those of Slack alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rigs.gateway_conformance import GatewayConformance
from tests.rigs.slack_api import SlackRig


class TestSlack(GatewayConformance):
    @pytest.fixture
    def rig(self) -> Any:
        return lambda: SlackRig().run()
