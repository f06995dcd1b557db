"""Checks for characters that are invisible, or look like others."""

from __future__ import annotations

import functools
import re
import unicodedata

_ZERO_WIDTH_JOINER = "\u200d"
_HIDDEN = {
    *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), "\u200e", "\u200f", "\u061c",  # directions
    "\u200b", "\u200c", "\ufeff", "\u00ad", "\u180e", "\u034f", *map(chr, range(0x2060, 0x2065)),  # no width
    "\u115f", "\u1160", "\u3164", "\uffa0", "\u2028", "\u2029", "\u0085",  # blank letters, other ends of lines
}  # fmt: skip
_SHOWN_CONTROLS = {"\n", "\t"}
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_SELECTED = re.compile("(?:^|[A-Za-z\\s\ufe00-\ufe0f])[\ufe00-\ufe0f]", re.MULTILINE)
"""One that selects no form of a letter before it; bytes can be written in a row of them."""
_JOINED = re.compile(_ZERO_WIDTH_JOINER)
_LEAST_LATIN = 2


def find_hidden(text: str) -> str:
    """Return the name of the first character that is invisible or reorders others; empty if there is none."""
    if text.isascii() and text.isprintable():
        return ""
    # Each distinct character is checked once, as even a long text has few.
    if _SELECTED.search(text):
        return "VARIATION SELECTOR"
    for each in sorted(set(text)):
        if _is_hidden(each):
            if each == _ZERO_WIDTH_JOINER and all(_joins_pictures(text, at.start()) for at in _JOINED.finditer(text)):
                continue
            return unicodedata.name(each, f"U+{ord(each):04X}")
    return ""


def find_lookalike(text: str) -> str:
    """Return the first word that mixes Latin letters with look-alikes of another alphabet; empty if there is none."""
    if text.isascii():
        return ""
    for word in {each.group(): None for each in _WORD.finditer(text)}:
        if word.isascii() or not _LATIN.search(word):
            continue
        foreign = [each for each in word if _script(each) in {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}]
        latin = sum(_script(each) == "LATIN" for each in word)
        if foreign and latin >= _LEAST_LATIN and all(map(_like_latin, foreign)):
            return word
    return ""


def _is_hidden(each: str) -> bool:
    if each in _HIDDEN or each == _ZERO_WIDTH_JOINER:
        return True
    category = unicodedata.category(each)
    if category == "Cc":
        return each not in _SHOWN_CONTROLS
    return category in {"Co", "Cs", "Cn"} or 0xE0000 <= ord(each) <= 0xE0FFF


def _joins_pictures(text: str, index: int) -> bool:
    around = text[max(0, index - 1) : index] + text[index + 1 : index + 2]
    pictures = {"So", "Sk", "Mn"}  # a joined character may end with a skin tone or a variation selector
    return len(around) == 2 and all(unicodedata.category(each) in pictures for each in around)


@functools.cache
def _script(each: str) -> str:
    return unicodedata.name(each, "").partition(" ")[0]


@functools.cache
def _like_latin(each: str) -> bool:
    from confusable_homoglyphs import confusables

    return bool(confusables.is_confusable(each, greedy=False, preferred_aliases=["latin"]))
