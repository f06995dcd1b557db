"""The behaviours of any platform with a server of WhatsApp's Cloud API, and those of WhatsApp alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rigs.gateway_conformance import GatewayConformance
from tests.rigs.whatsapp_api import WhatsAppRig


class TestWhatsApp(GatewayConformance):
    @pytest.fixture
    def rig(self) -> Any:
        return lambda: WhatsAppRig().run()
