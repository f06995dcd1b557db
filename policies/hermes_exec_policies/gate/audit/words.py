"""Rules on what a skill tells whoever reads its description: instructions that are not its own to give."""

from __future__ import annotations

import base64
import codecs
import html
import re
import unicodedata
from urllib.parse import unquote

from hermes_exec_policies.gate.audit import shells
from hermes_exec_policies.gate.audit.rules import patterns
from hermes_exec_policies.gate.verdict import Finding, functional, security

_COMMENT = re.compile(r"<!--(.*?)(-->|\Z)", re.DOTALL)
_UNSEEN = re.compile(
    r"<(\w+)[^>]*(?:\bhidden\b|display\s*:\s*none|visibility\s*:\s*hidden|(?:font-size|opacity|height)\s*:\s*0"
    r"|color\s*:\s*(?:#fff|white|transparent))[^>]*>(.*?)(?:</\1>|\Z)|^\[[^\]\n]+\]:\s*(?:#|<>)\s*([(\"'].*)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_FENCE = re.compile(r"```[\w-]*")
_QUOTED = re.compile(r"`[^`\n]*`")
_TAG = re.compile(r"<[A-Za-z/!?]|^\[", re.MULTILINE)
"""What begins markup, or a definition that is not shown."""
_INSTALL = re.compile(r"(?:uv\s+)?pip3?\s+install\s+(?P<names>[^\n`;&|)#]+)")
_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(\[[\w,-]+\])?([<>=!~]=?=?[\w.*,<>=!~]+)?|-U|--upgrade|-q|--quiet")
_IDIOM = re.compile(
    r"<!--\s*(generated (by|from|with) [\w./-]{1,40}( [\w./-]{1,20}){0,2}[;,.]? ?"
    r"do not edit( this( \w{1,12})?)?( by hand| manually)?"
    r"|(prettier|markdownlint|toc|cspell)[-\w: ]{0,40})[.!]?\s*-->",
    re.IGNORECASE,
)
"""Comments that tools leave."""
_ORDERS = re.compile(r"\b(system|run|execute|ignore|install|always|must|send|do not|read|call)\b", re.IGNORECASE)
_CODED = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){12,}\b|(?:\\x[0-9a-fA-F]{2}){6,}")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_MARKUP = re.compile(r"</?\w[^>\n]*>|(?<=\w)[*_`~]{1,3}(?=\w)|[*`~]")
_SPACED = re.compile(r"\b\w(?: \w\b){3,}")
_DIGITS = re.compile(r"(?=\w*[a-z])(?=\w*\d)\w+", re.IGNORECASE)
_LEET = str.maketrans("013457", "oieast")
_SENTENCES = re.compile(r"[.!?;:\u3002\uff01\uff1f\u0964]\s|[\u3002\uff01\uff1f\u0964]")


def findings(path: str, text: str, packages: frozenset[str] = frozenset()) -> list[Finding]:
    """What the rules find in a description, also in words that are hidden by an encoding.

    ``packages`` are those that it declares: how somebody else would install these is no order.
    """
    found = (
        _look(path, text)
        + [each for each in shells.commands(path, text) if each.code != "audit.install"]
        + _installs(path, text, packages)
    )
    for hit in () if _quotes_markup(text) else (*_COMMENT.finditer(text), *_UNSEEN.finditer(text)):
        if _ORDERS.search(hit.group()) and not _IDIOM.fullmatch(hit.group()):
            found.append(security("audit.comment", "words that are not shown give orders", path, _line(text, hit)))
    for hit in (*_CODED.finditer(text), *_HEX.finditer(text)):
        said = _decoded(hit.group())
        if said and (_look(path, said) or shells.commands(path, said) or _order(said)):
            found.append(security("audit.encoded", "an encoded text gives orders", path, _line(text, hit)))
    if not found:
        for form in _forms(text):
            # Where it stands cannot be told any more.
            found += [each for each in _look(path, form) if each not in found]
            if order := _order(form):
                found.append(security("audit.override", f"it says what is not a skill's to say: {order}", path))
    for form in (codecs.encode(text, "rot13"), text[::-1]):
        if order := _order(form):
            found.append(security("audit.encoded", f"a text that is turned round gives orders: {order}", path))
    return found


def overrides(path: str, text: str) -> list[Finding]:
    """An order to forget other orders, in data: who reads it with a model has it obeyed."""
    order = next((order for form in _forms(text) if (order := _order(form))), "")
    return [security("audit.override", f"it says what is not a skill's to say: {order}", path)] if order else []


def _installs(path: str, text: str, packages: frozenset[str]) -> list[Finding]:
    """Commands that install: those of declared packages are nothing, those of plain names are to be declared."""
    found: list[Finding] = []
    for hit in patterns("commands")["install"].finditer(text):
        if hit[0].endswith(("install", "add")) and text[hit.start() - 1] == text[hit.end() : hit.end() + 1] == "`":
            continue  # it is spoken of, and nothing is named
        command = _INSTALL.match(text, hit.start())
        words = command["names"].replace("-r requirements.txt", "-q").split() if command else []
        names = [_NAME.fullmatch(each.strip("'\"")) for each in words]
        if not all(names) or not names:
            said = f"a command that no skill needs: {hit.group().strip()}"
            found.append(security("audit.install", said, path, _line(text, hit)))
            continue
        lacking = [each["name"] for each in names if each and each["name"] and canonical(each["name"]) not in packages]
        if lacking:
            said = f"it tells to install {', '.join(lacking)}: declare that in needs-packages, and the gate installs it"
            found.append(functional("audit.install", said[:300], path, _line(text, hit)))
    return found


def _quotes_markup(text: str) -> bool:
    """Whether all markup stands between single backticks, where it is shown and hides nothing.

    Anything that could make a reader pair the backticks in another way is no.
    """
    lines = [line for line in text.split("\n") if not _FENCE.fullmatch(line)]
    if any("``" in line or "\\`" in line or line.count("`") % 2 for line in lines):
        return False
    return not _TAG.search(_QUOTED.sub("", "\n".join(lines)))


def canonical(name: str) -> str:
    """A package's name in the one spelling that all of its spellings have."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _look(path: str, text: str) -> list[Finding]:
    return [
        security(
            f"audit.{name}", f"it says what is not a skill's to say: {hit.group().strip()}", path, _line(text, hit)
        )
        for name, rule in patterns("words").items()
        if (hit := rule.search(text))
    ]


def _order(text: str) -> str:
    """A sentence that tells somebody to forget what was said before, in any of many languages; else empty."""
    if hit := patterns("words")["override"].search(text):
        return hit.group()
    rules = patterns("orders")
    flat = unicodedata.normalize("NFKD", " ".join(text.split()).casefold())
    bare = "".join(each for each in flat if not "\u0300" <= each <= "\u036f").replace("\u0131", "i")
    for each in _SENTENCES.split(unicodedata.normalize("NFC", bare)):
        if all(rule.search(each) for rule in rules.values()):
            return each[:120]
    return ""


def _forms(text: str) -> list[str]:
    """The text as somebody reads it: without markup, escapes, fonts of Unicode, and spaces between letters."""
    unescaped = _ESCAPE.sub(lambda hit: chr(int(hit[hit.lastindex or 0], 16)), text)
    read = unicodedata.normalize("NFKC", html.unescape(unquote(unescaped)))
    bare = _MARKUP.sub("", read)
    close = re.sub(" {2,}", " ", _SPACED.sub(lambda hit: hit.group().replace(" ", ""), bare))
    whole = re.sub(r"(?<=\w)-\n\s*(?=\w)", "", bare)
    letters = _DIGITS.sub(lambda hit: hit.group().translate(_LEET), bare)
    return list(dict.fromkeys(" ".join(each.split()) for each in (read, bare, close, whole, letters)))


def _decoded(text: str) -> str:
    """What base64 or hexadecimal digits say, where that is plain text."""
    digits = text.replace("\\x", "")
    for decode in (bytes.fromhex, _of_base64):
        try:
            return decode(digits).decode("ascii")
        except ValueError:  # also of what is no base64, and no ASCII
            continue
    return ""


def _of_base64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _line(text: str, hit: re.Match[str]) -> int:
    return text.count("\n", 0, hit.start()) + 1
