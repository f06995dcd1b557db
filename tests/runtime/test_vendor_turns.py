"""Turns of conversations whose model is behind a vendor's own API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.dialects import Reasoning
from hermes_exec_agent.models.fallback import Fallback
from hermes_exec_agent.models.retrying import Patience
from hermes_exec_agent.models.vendor_endpoint import VendorEndpoint
from tests.rigs.bounded import PATIENCE_S, within
from tests.rigs.vendors import APIS, KEY, MODELS, SIGNATURE, Api, Refused, Said, Vendor

if TYPE_CHECKING:
    from tests.runtime.conftest import Talk

pytestmark = pytest.mark.parametrize("api", APIS)
LOOK = Said("Look.", "I think.", [("terminal", {"command": "echo hello"}), ("terminal", {"command": "echo you"})])


def create(rig: Vendor, **more: Any) -> VendorEndpoint:
    return VendorEndpoint(
        MODELS[rig.api], api=rig.api, base_url=rig.url, key=Secret("THE_KEY", KEY), reasoning=Reasoning("low"),
        patience=Patience(attempts=1), **more,
    )  # fmt: skip


def test_a_resumed_conversation_has_the_reasoning_of_its_vendor(talk: Talk, api: Api) -> None:
    async def work() -> tuple[str, Vendor]:
        async with Vendor(api, [LOOK, Said("hello you"), Said("again")]) as rig:
            first, second = create(rig), create(rig)
            async with talk(first) as conversation:
                answer = await conversation.ask("greet me")
            async with talk(second, resume=conversation.id) as resumed:
                await resumed.ask("once more")
            await first.close()
            await second.close()
            return answer.text, rig

    text, rig = within(PATIENCE_S)(work())
    assert text == "hello you"
    assert not rig.complaints
    results = json.dumps(rig.requests[1])
    assert "hello" in results
    assert "you" in results
    assert all(SIGNATURE in json.dumps(request) for request in rig.requests[1:])


@pytest.mark.parametrize("other", APIS)
def test_a_fallback_goes_on_in_the_middle_of_a_turn(talk: Talk, api: Api, other: Api) -> None:
    async def work() -> tuple[str, Vendor]:
        async with (
            Vendor(api, [LOOK, Refused(500, "down", "api_error")]) as rig,
            Vendor(other, [Said("done")]) as spare,
        ):
            models = Models(Fallback([create(rig), create(spare)]))
            async with talk(models.main, models=models) as conversation:
                answer = await conversation.ask("greet me")
            await models.close()
            return answer.text, spare

    text, spare = within(PATIENCE_S)(work())
    assert text == "done"
    assert not spare.complaints
    # The same model at another address may not get it either.
    assert SIGNATURE not in json.dumps(spare.requests)
