"""Look for files by their names, or for lines by an expression; the wish comes as JSON on standard input."""

import fnmatch
import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SKIPPED = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"}
LARGEST = 16 << 20
LONGEST = 500


def main() -> "None":
    """Tell what is found, in the order of the names, as much as is wanted of it."""
    wish = json.load(sys.stdin)
    if not os.path.exists(wish["path"]):
        sys.exit("there is no %s" % wish["path"])
    try:
        found = names(wish) if wish["target"] == "files" else lines(wish)
        for number, text in enumerate(found):
            if number >= wish["offset"] + wish["limit"]:
                tell("[there are more: offset %d]" % number)
                break
            if number >= wish["offset"]:
                tell(text)
    except re.error as error:
        sys.exit("the pattern is no regular expression: %s" % error)


def tell(text: "str") -> "None":
    """Write a line, whatever is in it."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")


def walked(root: "str") -> "Iterator[str]":
    """The files below a folder, or the one file."""
    if not os.path.isdir(root):
        yield root
        return
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in SKIPPED)
        for name in sorted(files):
            yield os.path.join(folder, name)


def shown(path: "str", root: "str") -> "str":
    """A path as seen from where it was searched."""
    name = path if path == root else os.path.relpath(path, root)
    return name if name.isprintable() else ascii(name)[1:-1]  # no name begins a line of its own


def matches(path: "str", root: "str", pattern: "str") -> "bool":
    """Whether a glob means this file, by its name or by its path."""
    return fnmatch.fnmatch(os.path.basename(path), pattern) or fnmatch.fnmatch(os.path.relpath(path, root), pattern)


def names(wish: "dict[str, Any]") -> "Iterator[str]":
    """The files whose names fit."""
    root = wish["path"]
    for path in walked(root):
        if matches(path, root, wish["pattern"]):
            yield shown(path, root)


def lines(wish: "dict[str, Any]") -> "Iterator[str]":
    """The lines that fit, with those around them, or the files that have such."""
    root, around, mode = wish["path"], wish["context"], wish["output_mode"]
    expression = re.compile(wish["pattern"])
    for path in walked(root):
        if wish["file_glob"] and not matches(path, root, wish["file_glob"]):
            continue
        text = content(path)
        hits = {at for at, line in enumerate(text) if expression.search(line)}
        name = shown(path, root)
        if hits and mode == "files":
            yield name
        elif hits and mode == "count":
            yield "%s:%d" % (name, len(hits))
        else:
            for at in sorted({at for hit in hits for at in range(max(0, hit - around), hit + around + 1)}):
                if at < len(text):
                    mark = ":" if at in hits else "-"
                    yield "%s%s%d%s%s" % (name, mark, at + 1, mark, text[at][:LONGEST])


def content(path: "str") -> "list[str]":
    """The lines of a text; none of what is no text, too large or not to be read."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST:
            return []
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return []
    return [] if b"\0" in data[:8192] else data.decode("utf-8", "replace").splitlines()


main()
