"""The checks that inspect_ai ships for sandboxes, run by the environment of inspect_ai, in which pytest collects this."""

import os

import pytest_asyncio
from inspect_ai.util._sandbox.self_check import *

from hermes_exec_agent.bridges.inspect_sandbox import HermesExecSandbox


@pytest_asyncio.fixture
async def sandbox_env():
    opened = await HermesExecSandbox.sample_init("checks", os.environ.get("HERMES_TARGET", "local"), {})
    try:
        yield opened["default"]
    finally:
        await HermesExecSandbox.sample_cleanup("checks", None, opened, False)
