"""Minification of the guest's source: docstrings, comments and annotations are removed.

It uses regular expressions that fit the style of these modules, because parsing would take longer than it saves; a test
compares the syntax trees before and after.
"""

from __future__ import annotations

import re

_DOCSTRING = re.compile(rb'^([ \t]*)"""(?:[^"\\]|"(?!""))*"""$', re.MULTILINE)
_COMMENT = re.compile(rb"^[ \t]*#.*|  # [^\"'\n]*$", re.MULTILINE)
_FOR_CHECKERS = re.compile(rb"^TYPE_CHECKING = False\nif TYPE_CHECKING:\n(?:[ \t]+.*\n|\n(?=[ \n]))*", re.MULTILINE)
_FUNCTION = re.compile(rb"^[ \t]*def .*", re.MULTILINE)
_ARGUMENT = re.compile(rb'(?<=\w): "[^"\n]*"(?=[,)]| =)')
_VARIABLE = re.compile(rb'^([ \t]*[\w.]+): "[^"\n]*"(?= =)', re.MULTILINE)
_RETURNED = re.compile(rb"\) -> [^:\n]+:$", re.MULTILINE)
_INDENT = re.compile(rb"^(?:    )+", re.MULTILINE)


def minify(source: bytes) -> bytes:
    """Return equivalent source with the same line numbers, so that tracebacks stay correct."""
    source = _DOCSTRING.sub(lambda found: found[1] + b'""' + b"\n" * found[0].count(b"\n"), source)
    source = _COMMENT.sub(b"", source)
    source = _FOR_CHECKERS.sub(lambda found: b"\n" * found[0].count(b"\n"), source)
    source = _FUNCTION.sub(lambda found: _ARGUMENT.sub(b"", found[0]), source)
    source = _VARIABLE.sub(lambda found: found[1], source)
    source = _RETURNED.sub(b"):", source)
    return _INDENT.sub(lambda found: b"\t" * (len(found[0]) // 4), source)
