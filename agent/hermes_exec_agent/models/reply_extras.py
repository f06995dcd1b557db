"""Fields that endpoints send beside the protocol's own: reasoning and its signatures.

They are opaque. They are kept as they came, within a bound, and sent back to the endpoint that gave them. Only fields
that an endpoint's documentation says to return are kept; others, returned, would be refused by some.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")
"""Of a message: DeepSeek, vLLM and SGLang; vLLM, OpenRouter and Groq; OpenRouter; Gemini."""
CALL_FIELDS = ("extra_content",)
"""Of a call: Gemini's signature."""
LIMIT = 1 << 20
"""Bytes of one reply's extras, as JSON."""
_GROWING = ("text", "summary", "data")
"""Fields of an entry of ``reasoning_details`` that come in pieces."""
_DETAILS = "reasoning_details"
_WHOLE = "reasoning.encrypted"


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


class ExtrasTooLong(Exception):
    """A reply's extras exceed `LIMIT`."""


class ExtrasBudget:
    """Counts the bytes of all extras of one reply."""

    def __init__(self) -> None:
        self._used = 0

    def take(self, value: object) -> None:
        """Count a value that is about to be kept.

        Raises:
            ExtrasTooLong: there is no room for it.
        """
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self._used += len(text.encode("utf-8", "surrogatepass"))
        if self._used > LIMIT:
            raise ExtrasTooLong


class _Pieces(list[str]):
    """A text that is still coming."""


class Extras:
    """The extras of one message, or of one call, put together from the pieces of a stream."""

    def __init__(self, names: tuple[str, ...], budget: ExtrasBudget) -> None:
        """``names`` are the fields that are kept."""
        self._names = names
        self._budget = budget
        self._fields: dict[str, Any] = {}
        self._details: list[Any] = []
        self._known: dict[tuple[object, ...], dict[str, Any]] = {}
        """The entries of `_details` by index and type, and by index, type and id: the latest of each."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields received so far."""
        whole = {name: _join(value) for name, value in self._fields.items()}
        return {**whole, _DETAILS: _join(self._details)} if self._details else whole

    def add(self, piece: Mapping[str, Any] | None) -> None:
        """Take in what a piece has beside the known fields.

        Raises:
            ExtrasTooLong: they exceed the bound.
        """
        for name in self._names:
            value: Any = (piece or {}).get(name)
            if value is None:
                continue
            before: Any = self._fields.get(name)
            if isinstance(value, str):
                _append(self._fields, name, value, self._budget)
            elif name == _DETAILS and _is_list(value):
                for entry in value:
                    self._add_detail(entry)
            elif _is_table(value) and _is_table(before):
                self._budget.take(value)
                _merge(before, value)
            else:
                self._budget.take(value)
                self._fields[name] = value

    def _add_detail(self, entry: Any) -> None:
        known = self._find_entry(entry)
        if known is None:
            self._budget.take(entry)
            self._details.append(entry)
            known = entry
        else:
            for key, value in entry.items():
                if key in _GROWING and isinstance(value, str):
                    _append(known, key, value, self._budget)
                elif known.get(key) is None:
                    self._budget.take({key: value})
                    known[key] = value
        if _is_table(known):
            index, kind, id = _get_keys(known)
            self._known[index, kind] = self._known[index, kind, id] = known

    def _find_entry(self, entry: Any) -> dict[str, Any] | None:
        """The entry of which this is one more piece: of the same index and type, and of no other id.

        Without an index it is the last one, unless that is signed. Encrypted entries without an index come whole.
        """
        if not _is_table(entry):
            return None
        index, kind, id = _get_keys(entry)
        if not index:
            last = self._details[-1] if self._details else None
            if not _is_table(last) or kind == _WHOLE or last.get("signature"):
                return None
            return last if _get_keys(last) == ("", kind, id or _get_keys(last)[2]) else None
        latest = self._known.get((index, kind))
        if latest is None or not id or _get_keys(latest)[2] in ("", id):
            return latest
        return self._known.get((index, kind, id))


def _get_keys(entry: dict[str, Any]) -> tuple[str, str, str]:
    """The index, the type and the id of an entry, as text; empty where there is none."""
    index, kind, id = (entry.get(key) for key in ("index", "type", "id"))
    return "" if index is None else str(index), str(kind or ""), str(id or "")


def _append(into: dict[str, Any], key: str, text: str, budget: ExtrasBudget) -> None:
    budget.take(text)
    before = into.get(key)
    if isinstance(before, _Pieces):
        before.append(text)
    else:
        into[key] = _Pieces([before, text] if isinstance(before, str) else [text])


def _join(value: Any) -> Any:
    """The value with every text whole."""
    if isinstance(value, _Pieces):
        return repair_surrogates("".join(value))
    if _is_table(value):
        return {key: _join(each) for key, each in value.items()}
    if _is_list(value):
        return [_join(each) for each in value]
    return repair_surrogates(value) if isinstance(value, str) else value


def repair_surrogates(text: str) -> str:
    """The text with surrogates that a stream cut apart joined; one without its other half becomes U+FFFD.

    A request with such a half in it cannot be sent.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        before: Any = into.get(key)
        if _is_table(before) and _is_table(value):
            _merge(before, value)
        else:
            into[key] = value
