"""Find secrets of a known shape in the texts of a skill; nothing is guessed from randomness or from words nearby."""

from __future__ import annotations

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.layout import decode_text
from hermes_exec_policies.gate.verdict import Finding, functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_exec_policies.gate.tree import Tree

_DETECTORS = {
    "AKIA": ("aws", "AWSKeyDetector"),
    "ASIA": ("aws", "AWSKeyDetector"),
    "AccountKey=": ("azure_storage_key", "AzureStorageKeyDetector"),
    "gh": ("github_token", "GitHubTokenDetector"),
    "gl": ("gitlab_token", "GitLabTokenDetector"),
    "-us": ("mailchimp", "MailchimpDetector"),
    "T3BlbkFJ": ("openai", "OpenAIDetector"),
    "pypi-Ag": ("pypi_token", "PypiTokenDetector"),
    "SG.": ("sendgrid", "SendGridDetector"),
    "xox": ("slack", "SlackDetector"),
    "hooks.slack.com": ("slack", "SlackDetector"),
    "sq0csp-": ("square_oauth", "SquareOAuthDetector"),
    "k_live_": ("stripe", "StripeDetector"),
}
"""Detectors of detect-secrets with a shape of their own, by a text that each of their secrets has."""
_OTHERS = {
    "Anthropic key": re.compile(r"sk-ant-[a-z0-9]{2,8}-[A-Za-z0-9_-]{80,120}"),
    "GitHub fine-grained token": re.compile(r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    "Google API key": re.compile(r"(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    "Hugging Face token": re.compile(r"(?<![A-Za-z0-9_])hf_[A-Za-z]{34}(?![A-Za-z0-9])"),
    "Discord bot token": re.compile(
        r"(?<![\w.-])[MNO][A-Za-z\d_-]{23,25}\.[A-Za-z\d_-]{6}\.[A-Za-z\d_-]{27,38}(?![\w.-])"
    ),
    "Telegram bot token": re.compile(r"(?<!\w)\d{8,10}:AA[A-Za-z0-9_-]{33}(?![\w-])"),
    "npm token": re.compile(r"(?<![A-Za-z0-9_])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
}
"""Shapes that detect-secrets does not know."""
_BEGINS = re.compile(
    "AKIA|ASIA|AccountKey=|gh(?=[pousr]_)|gl(?=(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-)"
    r"|(?<=[0-9a-z]{32})-us(?=\d)|T3BlbkFJ|pypi-Ag|SG\.(?=[\w-]{22}\.)|xox(?=[a-z]-\d)|hooks\.slack\.com|sq0csp-|k_live_"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]{2,10} ){0,2}PRIVATE KEY(?: BLOCK)?-----")
_MAX_KEY = 16 << 10
_LEAST_KEY = 64
"""Characters of base64 in the shortest private key, of an elliptic curve."""
_BEFORE, _AFTER = 200, 300
_MOST_PLACES = 2000
_PLACEHOLDER = re.compile(
    r"example|sample|placeholder|dummy|fake|your|redacted|changeme|secret|token|here|todo|xxx|\*\*\*|\.\.\."
    r"|0123456|1234567|abcdef|abcabc",
    re.IGNORECASE,
)
_FEW = 4


def find_secrets(tree: Tree) -> list[Finding]:
    """Return a finding for each file with a secret; none quotes it."""
    found: list[Finding] = []
    for each in tree.files:
        text = decode_text(tree.read(each.path))
        if text is None:
            continue
        for kind, index in _secrets(text):
            wrong = f"it holds a secret, which everyone who gets the skill could use: {kind}"
            remedy = "revoke it, and write a placeholder or read it from the environment"
            line = text.count("\n", 0, index) + 1
            found.append(functional("manifest.secret", f"{wrong}; {remedy}", each.path, line))
            break
    return found


def find_secret(text: str) -> str:
    """Return the kind of the first secret in a text; empty if there is none."""
    return next((kind for kind, _ in _secrets(text)), "")


def _secrets(text: str) -> Iterator[tuple[str, int]]:
    """Yield the kind and the position of each secret in a text, in time linear to its length."""
    for count, at in enumerate(_BEGINS.finditer(text)):
        if count == _MOST_PLACES:
            yield f"{_MOST_PLACES} texts that begin like one", at.start()
            return
        start = max(0, at.start() - _BEFORE)
        detector = _detector(*_DETECTORS[at.group()])
        for shape in detector.denylist:
            for found in shape.finditer(text[start : at.end() + _AFTER]):
                if not _is_placeholder(found.group()):
                    yield detector.secret_type, start + found.start()
    for kind, shape in _OTHERS.items():
        for found in shape.finditer(text):
            if not _is_placeholder(found.group()):
                yield kind, found.start()
    for found in _PRIVATE_KEY.finditer(text):
        if _is_key(text[found.end() : found.end() + _MAX_KEY]):
            yield "private key", found.start()


@functools.cache
def _detector(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)()


def _is_key(rest: str) -> bool:
    body, _, end = rest.partition("-----")
    if not end.startswith("END "):
        return False
    lines = re.split(r"[\s\"',+]+|\\n", body.replace("\\r", ""))
    letters = "".join(line for line in lines if line and ":" not in line)
    return len(letters) >= _LEAST_KEY and not re.search(r"[^A-Za-z0-9/=]", letters) and len(set(letters)) > _FEW


def _is_placeholder(secret: str) -> bool:
    """Return whether a text has the shape of a secret and is none: words, digits in order, a few letters."""
    last = re.split(r"[-_.]", secret)[-1]
    return bool(_PLACEHOLDER.search(secret)) or len(set(last)) < _FEW
