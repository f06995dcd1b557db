"""What well-kept scanners find: detect-secrets for secrets, bandit for hints about Python.

A scanner's word is never the boundary. Secrets refuse, because what is registered is kept for good; bandit only hints,
because its milder rules hit honest code as often as other code.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

from hermes_exec_policies.gate.audit.rules import patterns
from hermes_exec_policies.gate.verdict import Finding, advice, security

_SECRETS = (
    "ArtifactoryDetector", "AWSKeyDetector", "AzureStorageKeyDetector", "CloudantDetector", "DiscordBotTokenDetector",
    "GitHubTokenDetector", "GitLabTokenDetector", "IbmCloudIamDetector", "JwtTokenDetector", "MailchimpDetector",
    "NpmDetector", "OpenAIDetector", "PrivateKeyDetector", "PypiTokenDetector", "SendGridDetector", "SlackDetector",
    "SquareOAuthDetector", "StripeDetector", "TelegramBotTokenDetector", "TwilioKeyDetector",
)  # fmt: skip
"""Detectors of one shape of token each. Those that guess by entropy or by words near it hit honest code."""
_MOST_LINES = 20_000
_HINTS = 20


def findings(texts: dict[str, str], said: dict[str, list[str]]) -> list[Finding]:
    """What the scanners find in texts by path; ``said`` is what their expressions amount to."""
    found = [*_secrets(texts), *_secrets({path: "\n".join(each) for path, each in said.items()})]
    for path, text in texts.items():
        if path.endswith(".py") and path.startswith("scripts/"):
            found += _hints(path, text)
    return found


def _secrets(texts: dict[str, str]) -> list[Finding]:
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import transient_settings

    found: list[Finding] = []
    # No filters: some of those ask the services whether a secret is a live one.
    settings: dict[str, Any] = {"plugins_used": [{"name": name} for name in _SECRETS], "filters_used": []}
    with transient_settings(settings):
        for path, text in texts.items():
            for number, line in enumerate(text.split("\n")[:_MOST_LINES], 1):
                kinds = {secret.type for secret in scan_line(line)}
                kinds |= {f"{name} key" for name, rule in patterns("secrets").items() if rule.search(line)}
                found += [
                    security("audit.secret", f"it holds a secret: {kind}", path, number) for kind in sorted(kinds)
                ]
    return found


def _hints(path: str, text: str) -> list[Finding]:
    # It uses what Python has marked as going away, from its import on; its log goes nowhere.
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from bandit.core.config import BanditConfig
        from bandit.core.manager import BanditManager

        manager = BanditManager(BanditConfig(), "file", quiet=True)
        manager._parse_file(path, io.BytesIO(text.encode()), [path])  # noqa: SLF001  its only door for text at hand
        issues = manager.get_issue_list("MEDIUM", "MEDIUM")[:_HINTS]
    return [advice("audit.hint", f"bandit {issue.test_id}: {issue.text}", path, issue.lineno) for issue in issues]
