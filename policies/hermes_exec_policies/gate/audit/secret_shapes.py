"""Find secrets of a known shape with detect-secrets. A registered skill is kept, so a secret in it refuses."""

from __future__ import annotations

from typing import Any

from hermes_exec_policies.gate.verdict import Finding, functional

_DETECTORS = (
    "AWSKeyDetector", "AzureStorageKeyDetector", "DiscordBotTokenDetector", "GitHubTokenDetector",
    "GitLabTokenDetector", "MailchimpDetector", "NpmDetector", "OpenAIDetector", "PrivateKeyDetector",
    "PypiTokenDetector", "SendGridDetector", "SlackDetector", "SquareOAuthDetector", "StripeDetector",
    "TelegramBotTokenDetector", "TwilioKeyDetector",
)  # fmt: skip
"""Detectors of one shape of token each. Those that guess by entropy or by words near it hit honest code."""
_MAX_LINES = 20_000


def find_secrets(texts: dict[str, str]) -> list[Finding]:
    """Return a finding for each line with a secret; none quotes it."""
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import transient_settings

    # No filters: some of those ask the services whether a secret is a live one.
    settings: dict[str, Any] = {"plugins_used": [{"name": name} for name in _DETECTORS], "filters_used": []}
    with transient_settings(settings):
        return [
            functional(
                "audit.secret",
                f"it holds a secret ({kind}), which everybody who gets the skill could use; revoke it, and write a"
                " placeholder or read it from the environment",
                path,
                number,
            )
            for path, text in texts.items()
            for number, line in enumerate(text.split("\n")[:_MAX_LINES], 1)
            for kind in sorted({secret.type for secret in scan_line(line)})
        ]
