"""The text of a page. `parse_html` runs in a child process, as a page can hang or crash a parser.

Bytes become text by the rules of browsers: the mark at the beginning, the server's charset, the page's own, UTF-8, and
windows-1252 for the rest. A charset that browsers do not know is ignored, as some of Python's codecs are not charsets.
"""

from __future__ import annotations

import base64
import codecs
import re
from typing import Any

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LABEL = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_META_WITHIN = 1024
_MOST_SEARCHED = 1_500_000
"""Characters of a page whose article is searched for, which takes seconds for each million."""
_LATIN = "cp1252"
_CHARSETS = frozenset(
    [
        "utf-8",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "cp866",
        "koi8-r",
        "koi8-u",
        "mac-roman",
        "gb2312",
        "gbk",
        "gb18030",
        "big5",
        "big5hkscs",
        "euc_jp",
        "shift_jis",
        "iso2022_jp",
        "euc_kr",
        "cp949",
        "cp874",
        "tis-620",
    ]
    + [f"cp125{number}" for number in range(9)]
    + [f"iso8859-{number}" for number in range(2, 17)]
)
"""The names of Python's codecs for the encodings of the web."""


def decode(content: bytes, charset: str, *, is_html: bool = False) -> str:
    """Return the text of bytes; each byte that cannot be decoded becomes a replacement character."""
    for mark, name in _MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(name, "replace")
    found = _META.search(content[:_META_WITHIN]) if is_html else None
    own = found[1].decode("ascii") if found else ""
    names = [name for label in (charset, own) if (name := _find_codec(label))]
    for name in (*names, "utf-8"):
        try:
            return content.decode(name)
        except UnicodeDecodeError:
            continue
    return content.decode(names[0] if names else _LATIN, "replace")


def _find_codec(label: str) -> str:
    """Return the codec of a charset of the web, or an empty string."""
    try:
        name = codecs.lookup(label).name if _LABEL.fullmatch(label) else ""
    except LookupError:
        return ""
    if name in ("ascii", "iso8859-1"):  # as browsers read them
        return _LATIN
    return name if name in _CHARSETS else ""


def parse_html(content: str, charset: str, url: str) -> tuple[str, str]:
    """Return the title and the text of an HTML page: its article, or all of it if none is found or it is long.

    ``content`` is base64 of its bytes, ``charset`` the server's, if any.
    """
    import trafilatura

    html = decode(base64.b64decode(content), charset, is_html=True)
    tree: Any = trafilatura.load_html(html)
    if tree is None:
        return "", ""
    title = str(tree.findtext(".//title") or "")
    article = None
    if len(html) <= _MOST_SEARCHED:
        article = trafilatura.extract(
            tree,
            url=url,
            output_format="markdown",
            include_links=True,
            include_tables=True,
            include_comments=False,
        )
    return title, article or trafilatura.html2txt(html) or ""
