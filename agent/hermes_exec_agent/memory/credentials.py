"""Credentials as persons and programs write them down: a named value, an address with a password, a known prefix.

The gate finds secrets by their shape alone. What is to be remembered is short, and often says what a value is, so that
the word before it tells. A value that is a word, a placeholder or a reference to a variable is none.
"""

from __future__ import annotations

import re

_NAMES = (
    r"pass(?:word|wd|phrase|code|(?=\s{0,2}[=:]))|pwd|pw(?=\s{0,2}[=:])|secret(?:[ _-](?:access[ _-])?key)?",
    "(?:api|access|private)[ _-]?key|token|bearer|passwort|kennwort|zugangscode|contraseña|clave|mot de passe|senha",
    "palavra-passe|пароль|密码|密碼|パスワード|비밀번호",
)
_LINKS = ":=|=>?|:|\u2013|\u2014|is:?|was|ist|lautet|es|est|é|это|是|は"
_NAMED = re.compile(
    rf"(?:{'|'.join(_NAMES)})s?[\"'`]?"
    r"(?:\s{1,4}(?:for|of|on|to|für|von|de|del|da|do|pour|para)(?:\s{1,4}\S{1,40}){1,4}?)?"
    rf"\s{{0,4}}(?:{_LINKS})\s{{0,4}}[\"'`“„«]?([^\s\"'`”“»]{{8,200}})",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b(?:bearer|basic)\s{1,4}[\"'`]?([A-Za-z0-9._~+/=-]{16,200})", re.IGNORECASE)
_ADDRESS = re.compile(r"\b([a-z][a-z0-9+.-]{1,20})://([^\s/:@]{1,100}):(?!(?:\1|\2)@)([^\s/@]{5,200})@", re.IGNORECASE)
_PREFIXED = {
    "API key": re.compile(r"(?<![\w-])sk-(?:[a-z0-9]{2,10}-){0,2}([A-Za-z0-9_-]{20,200})"),
    "JSON web token": re.compile(r"(?<![\w-])eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.([\w-]{20,})"),
}
_REFERENCE = re.compile(r"[$%<{(\[*]|env:|vault:|file:|/|~|https?://")
"""The beginning of a value that says where the credential is."""
_COMMON = re.compile(
    r"(?:my|your|the)?[-_]?(?:pass(?:word|wd)?|pwd|secret|user(?:name)?|admin|root|guest|postgres|changeme|example)\d{0,3}",
    re.IGNORECASE,
)
_TERM = re.compile(
    r"[a-z_.]{4,40}\([^()]*\)(?:-[a-z]+)?$|\d{1,9}(?:tokens|bits|bytes|chars|characters|seconds|minutes|hours|days)$"
    r"|(?:md5|sha\d{1,3}|argon2(?:id?|d)?|s?crypt|bcrypt|pbkdf2)(?:[:-]|$)",
    re.IGNORECASE,
)
"""A call, as code has it; a number with its unit; the beginning with a digest's name."""
_PLACEHOLDER = re.compile(r"example|placeholder|redacted|changeme|xxx|\*\*\*|\.\.\.|…", re.IGNORECASE)
_PARTS = re.compile(r"[-_./:,;]")
_CLASSES = tuple(map(re.compile, (r"[a-z]", r"[A-Z]", r"\d", r"[^\w\s]")))
_LEAST = 8
_LEAST_PLAIN = 12
"""Characters of a value of letters and digits alone, from which on it is not taken for a version, name or model."""
_MANY = 3


def find_credential(text: str) -> str:
    """Return the kind of the first credential in a text; empty if there is none."""
    if any(_is_value(each[1]) for shape in (_NAMED, _HEADER) for each in shape.finditer(text)):
        return "a password or key"
    if any(not _is_word(each[3]) for each in _ADDRESS.finditer(text)):
        return "the password of an address"
    found = (kind for kind, shape in _PREFIXED.items() if any(_is_value(each[1]) for each in shape.finditer(text)))
    return next(found, "")


def _is_value(value: str) -> bool:
    """Whether a value looks chosen at random, or at least as passwords do."""
    return not _is_word(value) and any(map(_is_mixed, _PARTS.split(value)))


def _is_word(value: str) -> bool:
    is_known = _REFERENCE.match(value) or _TERM.match(value.rstrip(".,;:")) or _COMMON.fullmatch(value)
    return bool(is_known or _PLACEHOLDER.search(value))


def _is_mixed(part: str) -> bool:
    classes = [bool(shape.search(part)) for shape in _CLASSES]
    has_both = classes[2] and (classes[0] or classes[1])
    return has_both and (len(part) >= _LEAST_PLAIN or (len(part) >= _LEAST and sum(classes) >= _MANY))
