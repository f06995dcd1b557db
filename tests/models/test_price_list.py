"""Published prices: the real table, tiers, and models without one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.price_list import look_up_price
from hermes_exec_agent.models.protocol import Price, Usage

GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"


def test_a_price_bounds_every_tier_and_a_cost_is_of_its_own() -> None:
    price = look_up_price("gemini-2.5-pro", GEMINI)
    assert price is not None
    small, large = (Usage(prompt=tokens, completion=1000) for tokens in (1000, 300_000))
    rates = [(price.cost_of(each) * 1e6 - price.output * 1000) / each.prompt for each in (small, large)]
    assert rates[0] < rates[1] <= price.input
    assert price.cost_of(Usage(prompt=1000, cached=900)) < price.cost_of(Usage(prompt=1000))
    assert price.cost_of(small) <= (small.prompt * price.input + small.completion * price.output) / 1e6


OPENAI = "https://api.openai.com/v1"
HERE = ("http://localhost:8000/v1", "http://127.0.0.1:8000/v1", "http://10.1.2.3/v1", "http://[::1]:8000/v1")


@pytest.mark.parametrize(("model", "base_url"), [("no-such-model", OPENAI), ("", GEMINI), ("gpt-5-mini", HERE[0])])
def test_an_unknown_model_has_no_price(model: str, base_url: str) -> None:
    assert look_up_price(model, base_url) is None


def test_a_configured_price_comes_first() -> None:
    own = Price(1.0, 2.0)
    assert Endpoint("gpt-5-mini", base_url="https://api.openai.com/v1", price=own).price == own
    listed = Endpoint("gpt-5-mini", base_url="https://api.openai.com/v1").price
    assert listed is not None
    assert listed != own


def test_without_the_package_no_price_is_known() -> None:
    code = (
        "import sys\n"
        "sys.modules['genai_prices'] = None\n"
        "from hermes_exec_agent.models.price_list import look_up_price\n"
        "print(look_up_price('gpt-5-mini', 'https://api.openai.com/v1'))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "None\n"


def test_no_table_is_loaded_for_a_private_endpoint() -> None:
    code = (
        "import sys\n"
        "from hermes_exec_agent.models.price_list import look_up_price\n"
        f"print([look_up_price('gpt-5-mini', each) for each in {HERE!r}], 'genai_prices' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[None, None, None, None] False\n"
