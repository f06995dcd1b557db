"""The whole suite in a real sandbox of Modal's, the smallest there is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.modal import ModalBackend, create
from hermes_exec_backends.modal.account import Account
from hermes_exec_backends.modal.sandbox import Sandbox
from hermes_exec_backends.profiles import ModalProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hermes_exec.backend import Backend

pytestmark = pytest.mark.live


async def sweep(tags: dict[str, str]) -> None:
    """End every sandbox of these tests on the account."""
    account = await Account.of(ModalProfile())
    try:
        for handle in await create.list_running(account, tags):
            await Sandbox(account, handle).terminate()
    finally:
        await account.leave()


@pytest.fixture(scope="module")
def profile(live: Callable[[str], dict[str, Any]]) -> Generator[ModalProfile]:
    options = live("modal")
    asyncio.run(sweep(options["tags"]))
    yield ModalProfile(timeout=1800, **options)
    asyncio.run(sweep(options["tags"]))


class TestLiveModal(Conformance):
    column = "`modal`, live"
    limit_s = 120.0

    @pytest.fixture
    def backend(self, profile: ModalProfile) -> Backend:
        return ModalBackend(profile)
