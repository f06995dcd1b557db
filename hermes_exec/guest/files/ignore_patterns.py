"""Ignore patterns with the rules of gitignore(5), and the wildcards of one path component, on bytes.

Both sides use this file, so that both ignore the same names. It avoids ``re``, whose import costs a guest more than
most of its work.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable

    Match = Callable[[bytes], bool]

_CLASSES: "dict[bytes, Callable[[int], bool]]" = {
    b"alnum": lambda c: chr(c).isalnum() and c < 128,
    b"alpha": lambda c: chr(c).isalpha() and c < 128,
    b"blank": lambda c: c in b" \t",
    b"cntrl": lambda c: c < 32 or c == 127,
    b"digit": lambda c: 48 <= c <= 57,
    b"graph": lambda c: 32 < c < 127,
    b"lower": lambda c: 97 <= c <= 122,
    b"print": lambda c: 32 <= c < 127,
    b"punct": lambda c: 32 < c < 127 and not chr(c).isalnum(),
    b"space": lambda c: c in b" \t\n\v\f\r",
    b"upper": lambda c: 65 <= c <= 90,
    b"xdigit": lambda c: c in b"0123456789abcdefABCDEF",
}

STAR = None
"""In a parsed component: any number of bytes. The other parts are sets of bytes, one for each position."""


_NO_BYTE: "frozenset[int]" = frozenset()


class Malformed(ValueError):
    """A pattern that ends inside a bracket or an escape; it matches nothing."""


def parse(component: bytes) -> "list[frozenset[int] | None]":
    """Return the parts of one path component's pattern; raise Malformed."""
    parts: "list[frozenset[int] | None]" = []
    at = 0
    while at < len(component):
        byte = component[at]
        at += 1
        if byte == 42:  # *
            if not parts or parts[-1] is not STAR:
                parts.append(STAR)
        elif byte == 63:  # ?
            parts.append(frozenset(range(256)))
        elif byte == 91:  # [
            members, at = _bracket(component, at)
            parts.append(members)
        else:
            if byte == 92:
                byte, at = _parse_escape(component, at)
            parts.append(frozenset((byte,)))
    return parts


def _parse_escape(component: bytes, at: int) -> "tuple[int, int]":
    if at >= len(component):
        raise Malformed(component)
    return component[at], at + 1


def _bracket(component: bytes, at: int) -> "tuple[frozenset[int], int]":
    members: "set[int]" = set()
    negated = component[at : at + 1] in (b"!", b"^")
    at += negated
    first = at
    low = -1  # the first byte of a possible range
    while component[at : at + 1] != b"]" or at == first:
        named = _parse_class_name(component, at)
        if named:
            members.update(filter(_CLASSES[named], range(256)))
            at += len(named) + 4
            low = -1
            continue
        byte, at = _parse_escape(component, at)
        ranged = byte == 45 and low >= 0 and component[at : at + 1] not in (b"]", b"")
        if byte == 92:
            byte, at = _parse_escape(component, at)
        if ranged:
            high, at = _parse_escape(component, at)
            if high == 92:
                high, at = _parse_escape(component, at)
            members.update(range(low, high + 1))
            low = -1
        else:
            members.add(byte)
            low = byte
    everything = set(range(256)) - {47}
    return frozenset(everything - members if negated else members), at + 1


def _parse_class_name(component: bytes, at: int) -> bytes:
    """Return the name in ``[:name:]``; empty where there is none."""
    end = component.find(b"]", at + 2)
    if component[at : at + 2] != b"[:" or component[end - 1 : end] != b":" or end - 1 < at + 2:
        return b""
    name = component[at + 2 : end - 1]
    if name not in _CLASSES:
        raise Malformed(component)
    return name


def component(pattern: bytes) -> "Match":
    """Return a function that reports whether a name matches; common patterns need no loop."""
    try:
        parts = parse(pattern)
    except Malformed:
        return _nothing
    exact = [part for part in parts if part is not None]
    stars = len(parts) - len(exact)
    if stars <= 1 and all(len(part) == 1 for part in exact):
        literal = bytes(byte for part in exact for byte in part)
        if not stars:
            return literal.__eq__
        before = literal[: parts.index(STAR)]
        after = literal[len(before) :]
        size = len(literal)
        return lambda name: len(name) >= size and name.startswith(before) and name.endswith(after)
    return lambda name: _matches(parts, name)


def _nothing(name: bytes) -> bool:
    del name
    return False


def _matches(parts: "list[frozenset[int] | None]", name: bytes) -> bool:
    at = index = 0
    star = -1
    retry = 0
    while at < len(name):
        part = parts[index] if index < len(parts) else _NO_BYTE
        if part is None:
            star = index
            retry = at
            index += 1
        elif name[at] in part:
            index += 1
            at += 1
        elif star >= 0:  # let the last star match one byte more
            retry += 1
            at = retry
            index = star + 1
        else:
            return False
    return all(part is STAR for part in parts[index:])


class IgnoreRule:
    """One line of an ignore list."""

    __slots__ = ("_anchored", "_components", "folders_only", "negated")

    def __init__(self, line: bytes) -> None:
        self.negated = line.startswith(b"!")
        line = line[self.negated :]
        self.folders_only = line.endswith(b"/")
        line = line[:-1] if self.folders_only else line
        self._anchored = b"/" in line
        line = line[1:] if line.startswith(b"/") else line
        self._components: "list[Match | None]" = [
            None if word == b"**" and self._anchored else component(word) for word in _words(line)
        ]

    def matches(self, components: "list[bytes]", is_folder: bool) -> bool:
        """Whether the rule matches the path, given as its components."""
        if self.folders_only and not is_folder:
            return False
        if not self._anchored:
            match = self._components[0]
            return match is not None and match(components[-1])
        return _path_matches(self._components, components)


def _words(line: bytes) -> "list[bytes]":
    """Split a pattern at its slashes, except in brackets; return one malformed part if there is any."""
    words: "list[bytes]" = []
    start = at = 0
    try:
        while at < len(line):
            escaped = line[at] == 92
            if line[at + escaped : at + escaped + 1] == b"/":
                words.append(line[start:at])
                start = at + escaped + 1
            at = _bracket(line, at + 1)[1] if line[at] == 91 else at + escaped + 1
    except Malformed:
        return [line]
    return [*words, line[start:]]


def _path_matches(patterns: "list[Match | None]", components: "list[bytes]") -> bool:
    """Whether the whole path matches; None is ``**``: any components, but at least one at the end."""
    reached = {0}
    last = len(patterns)
    for index, pattern in enumerate(patterns):
        if pattern is None:
            start = min(reached)
            reached = set(range(start + (index == last - 1), len(components) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(components) and pattern(components[at])}
        if not reached:
            return False
    return len(components) in reached


def _clean(line: bytes) -> bytes:
    """Strip the spaces at the end, except one that a backslash escapes."""
    bare = line.rstrip(b"\r\n").rstrip(b" ")
    slashes = len(bare) - len(bare.rstrip(b"\\"))
    return bare + b" " if slashes % 2 and len(bare) < len(line.rstrip(b"\r\n")) else bare


class Ignore:
    """A list of patterns; the last one that matches a path decides."""

    def __init__(self, lines: "Iterable[bytes]") -> None:
        cleaned = [_clean(line) for line in lines]
        self.lines = [line for line in cleaned if line.strip(b"/!") and not line.startswith(b"#")]
        self._rules = [IgnoreRule(line) for line in self.lines]
        self._rules.reverse()

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, path: bytes, is_folder: bool) -> bool:
        """Whether to leave out ``path``, relative to the root; not called for the content of an ignored folder."""
        components = path.split(b"/")
        for rule in self._rules:
            if rule.matches(components, is_folder):
                return not rule.negated
        return False
