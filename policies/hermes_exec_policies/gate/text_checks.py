"""Check texts for characters that are invisible or look like others, and for secrets of a known shape.

Nothing is guessed from randomness or from words nearby.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def decode_text(data: bytes) -> str | None:
    """Return the text of a file that a model can read, without a byte order mark; None for data that it never reads."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None


_HIDDEN = {
    *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)),  # directions
    "\u200b", "\u200c", "\u200d", "\ufeff", "\u00ad", "\u180e", "\u034f", *map(chr, range(0x2060, 0x2066)),  # no width
    "\u115f", "\u1160", "\u3164", "\uffa0", "\u2028", "\u2029", "\u0085",  # blank letters, other ends of lines
}  # fmt: skip
_SHOWN_CONTROLS = {"\n", "\t", "\f"}
_PICTURES = {"So", "Sk", "Mn", "Cn"}
"""Categories next to a joiner of emoji: it may end with a skin tone or a selector, or be newer than this Python."""
_CONTEXTS: dict[str, frozenset[str]] = {
    "\u200c": frozenset(
        {"ARABIC", "SYRIAC", "NKO", "MONGOLIAN", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL",
         "TELUGU", "KANNADA", "MALAYALAM", "SINHALA", "KHMER", "MYANMAR", "TIBETAN"}
    ),
    "\u200b": frozenset({"THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE", "BALINESE"}),
    "\u180e": frozenset({"MONGOLIAN"}),
}  # fmt: skip
_CONTEXTS["\u200d"] = _CONTEXTS["\u200c"]
"""Scripts whose spelling has these characters between two letters."""
_MARK = re.compile("[\u200e\u200f\u061c]")
"""Marks that a line with letters from right to left needs for its punctuation."""
_STRAY_MARK = re.compile(f"{_MARK.pattern}{{2}}|(?<=[A-Za-z]){_MARK.pattern}(?=[A-Za-z])")
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_TAG_FLAGS = re.compile("\U0001f3f4(?:\U000e0067\U000e0062)(?:\U000e0065\U000e006e\U000e0067|"
                        "\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f")  # fmt: skip
"""The flags of England, Scotland and Wales, the only ones that are spelled with tag characters."""
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_SELECTED = re.compile("(?:^|[A-Za-z\\s\ufe00-\ufe0f])([\ufe00-\ufe0f])", re.MULTILINE)
"""One that selects no form of a letter before it; bytes can be written in a row of them."""
_SYMBOL = re.compile("[\u03b1-\u03b8\u03ba-\u03be\u03c0-\u03c9][A-Za-z]+")
"""A quantity such as a Greek rho with a Latin index. Omicron and iota stand for none."""
_GREEK = "\u0393\u0394\u0398\u039b\u039e\u03a0\u03a3\u03a6\u03a8\u03a9\u03b1-\u03b8\u03ba-\u03be\u03c0-\u03c9"
_INDEX = "\u00b2\u00b3\u00b9\u1d62-\u1d6a\u2070-\u209c\u2c7c"
_FORMULA = re.compile(f"(?!.*[A-Za-z]{{4}})[A-Za-z{_GREEK}]+[{_INDEX}][A-Za-z{_GREEK}{_INDEX}]*")
"""A product of Greek and Latin quantities with raised or lowered letters or digits, which no name has."""
_DECLINED = re.compile("[A-Z]{2,}[\u0430-\u044f\u0451]+")
"""An abbreviation in Latin capitals with the ending of a language that is written in Cyrillic letters."""
_LEAST_LATIN = 2


@dataclass(frozen=True, slots=True)
class HiddenCharacter:
    """A character of a text that is invisible or reorders others."""

    index: int
    name: str
    """``ZERO WIDTH SPACE (U+200B)``"""


def find_hidden(text: str) -> HiddenCharacter | None:
    """Return the first character that is invisible or reorders others.

    Emoji, marks in a line that is written from right to left, and joiners in the scripts that spell with them are none.
    """
    if text.isascii() and text.isprintable():
        return None
    text = _TAG_FLAGS.sub(lambda flag: "\U0001f3f4" * len(flag.group()), text)
    places = [found.start(1)] if (found := _SELECTED.search(text)) else []
    if _MARK.search(text):
        places += itertools.islice(_find_stray_marks(text), 1)
    # Each distinct character is checked once, as even a long text has few.
    if suspects := [each for each in set(text) if _is_hidden(each)]:
        pattern = re.compile(f"[{re.escape(''.join(suspects))}]")
        indexes = (found.start() for found in pattern.finditer(text))
        places += itertools.islice((index for index in indexes if not _is_spelling(text, index)), 1)
    if not places:
        return None
    index = min(places)
    return HiddenCharacter(index, f"{unicodedata.name(text[index], 'CONTROL CHARACTER')} (U+{ord(text[index]):04X})")


def find_lookalike(text: str) -> str:
    """Return the first word that mixes Latin letters with look-alikes of another alphabet; empty if there is none."""
    if text.isascii():
        return ""
    for word in {each.group(): None for each in _WORD.finditer(text)}:
        if word.isascii() or not _LATIN.search(word):
            continue
        if any(each.fullmatch(word) for each in (_SYMBOL, _FORMULA, _DECLINED)):
            continue
        foreign = [each for each in word if _script(each) in {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}]
        latin = sum(_script(each) == "LATIN" for each in word)
        if foreign and latin >= _LEAST_LATIN and all(map(_like_latin, foreign)):
            return word
    return ""


def _find_stray_marks(text: str) -> Iterator[int]:
    """Yield the index of each line's first mark of a direction that nothing in the line needs."""
    start = 0
    for line in text.split("\n"):
        if found := (_STRAY_MARK if _RIGHT_TO_LEFT.search(line) else _MARK).search(line):
            yield start + found.start()
        start += len(line) + 1


def _is_hidden(each: str) -> bool:
    if each in _HIDDEN:
        return True
    point = ord(each)
    category = unicodedata.category(each)
    if category == "Cc":
        return each not in _SHOWN_CONTROLS
    # Other characters of no meaning are shown: as a box, an icon of a font, or an emoji that is newer than this Python.
    nothing = category == "Cn" and (point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF or 0xFFF0 <= point <= 0xFFF8)
    return nothing or category == "Cs" or 0xE0000 <= point <= 0xE0FFF


def _is_spelling(text: str, index: int) -> bool:
    """Return whether an invisible character belongs to the spelling of the letters around it."""
    each, before, after = text[index], text[index - 1 : index], text[index + 1 : index + 2]
    if not before:
        return False
    if 0xE0100 <= ord(each) <= 0xE01EF:
        return _script(before) == "CJK"
    if each == "\u200d" and after and {unicodedata.category(before), unicodedata.category(after)} <= _PICTURES:
        return True
    scripts = _CONTEXTS.get(each, frozenset())
    return bool(after) and _script(before) in scripts and _script(after) in scripts


@functools.cache
def _script(each: str) -> str:
    return unicodedata.name(each, "").partition(" ")[0]


@functools.cache
def _like_latin(each: str) -> bool:
    from confusable_homoglyphs import confusables

    return bool(confusables.is_confusable(each, greedy=False, preferred_aliases=["latin"]))


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


def find_secret(text: str) -> str:
    """Return the kind of the first secret in a text; empty if there is none."""
    return next((kind for kind, _ in locate_secrets(text)), "")


def locate_secrets(text: str) -> Iterator[tuple[str, int]]:
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
