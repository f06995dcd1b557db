"""Search for files by name, or for lines by a regular expression; the request is JSON on standard input.

The modules ``filetrace`` and ``sensitive`` are sent before this one, concatenated with it.
"""

import fnmatch
import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

    from hermes_exec.guest.files.real_path import mounts, plain, source, trace
    from hermes_exec_agent.tools.inside.sensitive import homes_of, is_below, find_linked_secrets, secret_of

ASK = 3
"""The exit code of a search that a person must approve."""
OUTSIDE = "outside"
NAMED = 5
"""The most omitted secrets that are named."""
SKIPPED = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"}
LARGEST = 16 << 20
LONGEST = 500


class Limits:
    """The rules for files that may be shown."""

    def __init__(self, request: "Dict[str, Any]") -> "None":
        self.root = os.path.realpath(request["path"])
        self.homes = homes_of(request["home"])
        self.ours = tuple(request["ours"])
        self.kept = request["kept"]
        self.inside = [each for each in (self.root, request["root"]) if each]
        self.anywhere = bool(request["anywhere"])
        self.secrets = 0
        self.named: "List[str]" = []
        self.elsewhere = 0
        self._lines = mounts()
        self._points = {plain(line.split(b" ")[4]) for line in self._lines}
        self._linked: "Optional[Set[Tuple[int, int]]]" = None
        self.whole = bool(request["agreed"]) and bool(self.kind(self.root))

    def kind(self, path: "str") -> "str":
        """Return the kind of secret at a path without links, by this name or by its name below a bind mount."""
        if self.kept and is_below(path, self.kept):
            return ""
        mounted_from = os.fsdecode(source(os.fsencode(path), self._lines))
        return secret_of(path, self.ours) or (secret_of(mounted_from, self.ours) if mounted_from != path else "")

    def kind_below(self, path: "str") -> "str":
        """Return the kind of secret at a path reached from the root; bind mounts are resolved at mount points alone."""
        return self.kind(path) if os.fsencode(path) in self._points else secret_of(path, self.ours)

    def hides(self, path: "str") -> "bool":
        """Return whether a folder or a file, reached from the root without a link, is left out."""
        if self.whole or (self.kept and is_below(path, self.kept)) or not self.kind_below(path):
            return False
        self.leave_out(path)
        return True

    def leave_out(self, path: "str") -> "None":
        """Count a secret."""
        self.secrets += 1
        if len(self.named) < NAMED:
            self.named.append(to_shown_path(path, self.root))

    def hides_open(self, fd: "int", path: "str") -> "bool":
        """Return whether an open file is left out because of its real path, or of its other names."""
        found = trace(fd)
        real = os.fsdecode(found["real"])
        if not real or not (self.anywhere or any(is_below(real, each) for each in self.inside)):
            self.elsewhere += 1
            return True
        if self.whole:
            return False
        if real != path and self.kind(real):
            self.leave_out(path)
            return True
        if found["links"] > 1:
            if self._linked is None:
                self._linked = find_linked_secrets(self.homes, self.ours)
            info = os.fstat(fd)
            if (info.st_dev, info.st_ino) in self._linked:
                self.leave_out(path)
                return True
        return False


def main() -> "None":
    """Print the results in the order of names, up to the requested number."""
    request = json.load(sys.stdin)
    if not os.path.exists(request["path"]):
        sys.exit("there is no %s" % request["path"])
    limits = Limits(request)
    why = find_refusal(request, limits)
    if why:
        json.dump({"path": limits.root, "secret": why}, sys.stdout)
        sys.exit(ASK)
    request["path"] = limits.root
    try:
        found = names(request, limits) if request["target"] == "files" else lines(request, limits)
        for number, text in enumerate(found):
            if number >= request["offset"] + request["limit"]:
                tell("[there are more: offset %d]" % number)
                break
            if number >= request["offset"]:
                tell(text)
    except re.error as error:
        sys.exit("the pattern is not a regular expression: %s" % error)
    left_out = {"secrets": limits.secrets, "named": limits.named, "elsewhere": limits.elsewhere}
    json.dump(left_out, sys.stderr)


def find_refusal(request: "Dict[str, Any]", limits: "Limits") -> "str":
    """Return why the person must approve a search of the root; empty if no approval is needed."""
    if limits.root == request["agreed"]:
        return ""
    secret = limits.kind(limits.root)
    if secret:
        return secret
    free = limits.anywhere or any(is_below(limits.root, each) for each in (request["root"], request["kept"]) if each)
    return "" if free else OUTSIDE


def tell(text: "str") -> "None":
    """Write a line, even if it has characters that UTF-8 cannot encode."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")


def walk(root: "str", limits: "Limits") -> "Iterator[str]":
    """Yield the files below a folder, or the one file, without secrets."""
    if not os.path.isdir(root):
        yield root
        return
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            each for each in folders if each not in SKIPPED and not limits.hides(os.path.join(folder, each))
        )
        for name in sorted(files):
            if not limits.hides(os.path.join(folder, name)):
                yield os.path.join(folder, name)


def to_shown_path(path: "str", root: "str") -> "str":
    """Return a path relative to the searched folder."""
    name = path if path == root else os.path.relpath(path, root)
    return name if name.isprintable() else ascii(name)[1:-1]  # a line break in a name does not begin a line


def matches(path: "str", root: "str", pattern: "str") -> "bool":
    """Return whether a glob matches a file's name or path."""
    return fnmatch.fnmatch(os.path.basename(path), pattern) or fnmatch.fnmatch(os.path.relpath(path, root), pattern)


def names(request: "Dict[str, Any]", limits: "Limits") -> "Iterator[str]":
    """Yield the files whose names match."""
    root = request["path"]
    for path in walk(root, limits):
        if matches(path, root, request["pattern"]):
            yield to_shown_path(path, root)


def lines(request: "Dict[str, Any]", limits: "Limits") -> "Iterator[str]":
    """Yield the matching lines with their context, or the files that contain such lines."""
    root, around, mode = request["path"], request["context"], request["output_mode"]
    expression = re.compile(request["pattern"])
    for path in walk(root, limits):
        if request["file_glob"] and not matches(path, root, request["file_glob"]):
            continue
        text = content(path, limits)
        hits = {at for at, line in enumerate(text) if expression.search(line)}
        name = to_shown_path(path, root)
        if hits and mode == "files":
            yield name
        elif hits and mode == "count":
            yield "%s:%d" % (name, len(hits))
        else:
            for at in sorted({at for hit in hits for at in range(max(0, hit - around), hit + around + 1)}):
                if at < len(text):
                    mark = ":" if at in hits else "-"
                    yield "%s%s%d%s%s" % (name, mark, at + 1, mark, text[at][:LONGEST])


def content(path: "str", limits: "Limits") -> "List[str]":
    """Return the lines of a text file; none if it is not text, too large, unreadable or not to be shown."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST:
            return []
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            if limits.hides_open(file.fileno(), path):
                return []
            data = file.read()
    except OSError:
        return []
    return [] if b"\0" in data[:8192] else data.decode("utf-8", "replace").splitlines()


main()
