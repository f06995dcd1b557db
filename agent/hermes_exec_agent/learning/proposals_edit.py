"""Changes of one configuration file, as a unified diff or as lines ``key = value``, applied to its text.

A change applies only where the file still has what the change was written for: the removed and unchanged lines of each
part of a diff once and in their order, and of each key the value that it had. Nothing here reads or writes a file.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import FILE_NAME, to_printable
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = 16_384
"""Characters of a change."""
_POLICY = re.compile(r"policies/[A-Za-z0-9][A-Za-z0-9_-]{0,60}\.toml")
_DIFF = re.compile(r"^(?:diff |--- |@@ )")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_HEADER = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NO_LINE = "\\ No newline at end of file"


class Conflict(UsageError):
    """The file is no longer what the change was written for; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """A part of a diff."""

    old: tuple[str, ...]
    """The removed and the unchanged lines."""
    new: tuple[str, ...]
    """The lines in their place."""


def check_file(file: str) -> None:
    """Check that a change may concern a file.

    Raises:
        UsageError: it is neither ``hermes.toml`` nor a policy in ``policies/``.
    """
    if file != FILE_NAME and not _POLICY.fullmatch(file):
        raise UsageError(
            f"{to_printable(flatten(file, 80))}: a proposal may change {FILE_NAME} or policies/NAME.toml alone",
            remedy=f"{FILE_NAME}, or policies/NAME.toml",
        )


def is_diff(change: str) -> bool:
    """Return whether a change is a unified diff."""
    return _DIFF.match(change) is not None


def apply_change(file: str, change: str, text: str | None) -> str:
    """Return the file's text after a change; ``text`` is None if there is no such file.

    Raises:
        UsageError: the change is not well formed.
        Conflict: it does not fit the text.
    """
    if len(change) > MOST:
        raise UsageError(f"the change has {len(change)} characters; at most {MOST} are possible")
    if bad := next((each for each in change if not each.isprintable() and each not in "\n\t"), ""):
        raise UsageError(f"the change has the unprintable character {bad!a}")
    if is_diff(change):
        return apply_hunks(file, parse_diff(file, change), text)
    found = text or ""
    for keys, value in parse_values(change):
        found = _set_value(found, keys, value)
    return found


def parse_diff(file: str, change: str) -> list[Hunk]:
    """Return the parts of a unified diff of one file.

    Raises:
        UsageError: it is not well formed, or it names another file, a mode, a rename or binary data.
    """
    hunks: list[tuple[list[str], list[str]]] = []
    for line in change.rstrip("\n").split("\n"):
        if _HUNK.match(line):
            hunks.append(([], []))
        elif not hunks:
            _check_header(file, line)
        elif line[:1] in ("", " ", "+", "-"):
            for sign, lines in zip("-+", hunks[-1], strict=True):
                if line[:1] in ("", " ", sign):
                    lines.append(line[1:])
        elif line != _NO_LINE:
            raise UsageError(f"the diff has an invalid line: {to_printable(flatten(line, 80))}")
    if not hunks or any(old == new for old, new in hunks):
        raise UsageError("the diff has no part, or a part that changes nothing", remedy="@@ -1,2 +1,2 @@ and its lines")
    return [Hunk(tuple(old), tuple(new)) for old, new in hunks]


def _check_header(file: str, line: str) -> None:
    """Check a line before the first part: it may name this file alone."""
    allowed = {f"diff --git a/{file} b/{file}", "--- /dev/null", "new file mode 100644"}
    allowed |= {f"{sign} {side}{file}" for sign, sides in (("---", ("a/", "")), ("+++", ("b/", ""))) for side in sides}
    if line.partition("\t")[0] not in allowed and not re.fullmatch(r"index [0-9a-f]+\.\.[0-9a-f]+(?: 100644)?", line):
        raise UsageError(f"the diff should change {file} alone, and its text alone: {to_printable(flatten(line, 80))}")


def apply_hunks(file: str, hunks: Sequence[Hunk], text: str | None) -> str:
    """Return the text with the parts in place.

    Raises:
        Conflict: a part fits nowhere, or several times.
    """
    lines = (text or "").split("\n")
    if lines[-1] == "":
        lines.pop()
    done = 0
    for hunk in hunks:
        position = _find_position(file, hunk, lines, done)
        lines[position : position + len(hunk.old)] = hunk.new
        done = position + len(hunk.new)
    return "\n".join([*lines, ""]) if lines else ""


def _find_position(file: str, hunk: Hunk, lines: Sequence[str], start: int) -> int:
    if not hunk.old:
        if lines:
            raise Conflict(f"{file}: the diff creates it, and there is such a file", remedy="propose it again")
        return 0
    size = len(hunk.old)
    matches = [each for each in range(start, len(lines) - size + 1) if tuple(lines[each : each + size]) == hunk.old]
    if len(matches) == 1:
        return matches[0]
    first = to_printable(flatten(next(filter(None, hunk.old), ""), 80))
    what = "occurs several times" if matches else "is no longer there, or never was"
    raise Conflict(f"{file}: conflict: the part that begins with {first!r} {what}", remedy="propose it again")


def reverse_change(file: str, before: str | None, after: str | None, text: str | None) -> str | None:
    """Return the text without a change that once turned ``before`` into ``after``; None if the file has to be removed.

    Raises:
        Conflict: the changed lines were changed again.
    """
    if text == after:
        return before
    if before is None or after is None or text is None:
        raise Conflict(f"{file}: conflict: it was changed since", remedy="change it by hand")
    return apply_hunks(file, parse_diff(file, make_diff(file, after, before)), text)


def make_diff(file: str, before: str | None, after: str | None) -> str:
    """Return a unified diff; empty if the texts are equal."""
    return "".join(
        f"{line}\n"
        for line in difflib.unified_diff(
            (before or "").splitlines(),
            (after or "").splitlines(),
            "/dev/null" if before is None else f"a/{file}",
            "/dev/null" if after is None else f"b/{file}",
            lineterm="",
        )
    )


def parse_values(change: str) -> list[tuple[tuple[str, ...], object]]:
    """Return the keys and values of lines ``section.key = value``.

    Raises:
        UsageError: a line is not one.
    """
    found: list[tuple[tuple[str, ...], object]] = []
    for line in filter(str.strip, change.split("\n")):
        try:
            leaves = list(_list_leaves(tomllib.loads(line)))
        except (ValueError, RecursionError):
            leaves = []
        if not leaves:
            raise UsageError(
                f"not a line 'section.key = value' of TOML: {to_printable(flatten(line, 80))}",
                remedy="limits.timeout_s = 60.0, or a unified diff",
            )
        found += leaves
    if not found:
        raise UsageError("the change is empty", remedy="limits.timeout_s = 60.0, or a unified diff")
    return found


def _list_leaves(table: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _list_leaves(cast("dict[str, Any]", value), (*above, key))
        else:
            yield (*above, key), value


def read_values(change: str, text: str | None) -> dict[str, str]:
    """Return the present value of each key of a change, as TOML; empty for those that are not set.

    Raises:
        ConfigError: the present text is not TOML.
    """
    try:
        table = tomllib.loads(text or "")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the present file is not valid TOML: {error}", remedy="fix it first") from error
    return {".".join(keys): _show(get_value(table, keys)) for keys, _ in parse_values(change)}


def get_value(table: object, keys: Sequence[str]) -> object:
    """Return the value of dotted keys in nested tables; None if there is none."""
    for key in keys:
        table = cast("dict[str, object]", table).get(key) if isinstance(table, dict) else None
    return table


def _show(value: object) -> str:
    return "" if value is None else _spell(value)


def _spell(value: object) -> str:
    """Return a value as TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_spell, cast('list[object]', value)))}]"
        case dict():
            table = cast("dict[str, object]", value)
            return f"{{ {', '.join(f'{_spell_key(key)} = {_spell(each)}' for key, each in table.items())} }}"
        case _:
            return str(value)


def _spell_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _set_value(text: str, keys: tuple[str, ...], value: object) -> str:
    """Return the text with another value of one key; comments and the other lines stay.

    Raises:
        UsageError: the key cannot be changed in this way.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    line = f"{_spell_key(keys[-1])} = {_spell(value)}"
    headers = [(number, match[1]) for number, each in enumerate(lines) if (match := _HEADER.match(each))]
    start, end = _find_section(headers, keys[:-1], len(lines))
    if start is None:
        lines += [*([""] if lines else []), f"[{'.'.join(map(_spell_key, keys[:-1]))}]", line]
    else:
        named = re.compile(rf"^\s*{re.escape(_spell_key(keys[-1]))}\s*=")
        position = next((number for number in range(start, end) if named.match(lines[number])), None)
        if position is None:
            last = max((number + 1 for number in range(start, end) if lines[number].strip()), default=start)
            lines.insert(last, line)
        else:
            lines[position] = line
    changed = "\n".join([*lines, ""])
    if not _is_result(text, changed, keys, value):
        raise UsageError(
            f"{'.'.join(keys)} cannot be changed by a line of its own there",
            remedy="write the change as a unified diff",
        )
    return changed


def _find_section(headers: Sequence[tuple[int, str]], section: tuple[str, ...], length: int) -> tuple[int | None, int]:
    """Return the first line of a section and the line after its last one; None if there is no such section."""
    first = headers[0][0] if headers else length
    if not section:
        return 0, first
    for position, (number, name) in enumerate(headers):
        if tuple(part.strip().strip("\"'") for part in name.split(".")) == section:
            return number + 1, headers[position + 1][0] if position + 1 < len(headers) else length
    return None, length


def _is_result(text: str, changed: str, keys: Sequence[str], value: object) -> bool:
    """Return whether the changed text differs from the text in the value of this key alone."""
    try:
        wanted, found = tomllib.loads(text), tomllib.loads(changed)
    except (ValueError, RecursionError):
        return False
    table: object = wanted
    for key in keys[:-1]:
        table = cast("dict[str, object]", table).setdefault(key, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        return False
    table[keys[-1]] = value
    return wanted == found
