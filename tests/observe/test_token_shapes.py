"""Tokens of messengers are found by their shapes, in what the program logs."""

from __future__ import annotations

import logging
from urllib.request import urlopen

import pytest

from hermes_exec.observe.logs import LineFormatter
from hermes_exec.observe.token_shapes import redact_tokens

TELEGRAM = "7104711234:" + "AAF-" + "x_Yz0" * 6 + "Q"
TOKENS = {
    TELEGRAM: "telegram",
    f"bot{TELEGRAM}": "telegram",
    TELEGRAM.replace(":", "%3A"): "telegram",
    "xoxb-" + "123456789012-" * 2 + "AbCd" * 6: "slack",
    "xoxe.xoxp-1-" + "AbCd" * 10: "slack",
    "xapp-1-A012345-" + "1234567890-" + "ab12" * 16: "slack",
    "MTA" + "x" * 21 + ".G" + "abcde." + "y" * 38: "discord",
    "EAA" + "GxZC9ZB" * 20: "meta",
}


@pytest.mark.parametrize(("token", "platform"), TOKENS.items())
@pytest.mark.parametrize("around", ["{}", "Bearer {}", "GET https://api.example.org/{}/getMe", "{{'key': '{}'}}"])
def test_a_token_is_replaced_and_the_rest_stays(token: str, platform: str, around: str) -> None:
    kept = "bot" if token.startswith("bot") else ""
    assert redact_tokens(around.format(token)) == around.format(f"{kept}[token of {platform}]")


@pytest.mark.parametrize(
    "url", ["https://hooks.slack.com/services/T0/B0/" + "a" * 24, "https://discord.com/api/webhooks/123/" + "a" * 60]
)
def test_an_address_that_is_a_secret_keeps_its_host_alone(url: str) -> None:
    shown = redact_tokens(f"POST {url}")
    assert "a" * 20 not in shown
    assert url.split("/")[2] in shown


@pytest.mark.parametrize(
    "text", ["12:34:56 at 2026-11-28", "commit 4711:abc", "a.b.c", "xox-ray", "https://example.org:8443/" + "a" * 40]
)
def test_other_text_stays(text: str) -> None:
    assert redact_tokens(text) == text


def test_no_line_of_the_log_has_a_token() -> None:
    with pytest.raises(OSError, match="bot") as raised:
        urlopen(f"file:///bot{TELEGRAM}/getUpdates")
    about = {"msg": "asking %s", "args": (TELEGRAM,), "exc_info": (raised.type, raised.value, None)}
    record = logging.makeLogRecord({**about, "url": f"wss://host/?token={TELEGRAM}"})
    line = LineFormatter("text").format(record)
    assert TELEGRAM.partition(":")[2] not in line
    assert line.count("[token of telegram]") >= 2
    assert "asking" in line
