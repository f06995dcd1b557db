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

    @property
    def fields(self) -> dict[str, Any]:
        """What came so far."""
        return {name: _joined(value) for name, value in self._fields.items()}

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
            elif name == "reasoning_details" and _is_list(value):
                entries: list[Any] = before if _is_list(before) else []
                self._fields[name] = entries
                for entry in value:
                    self._add_detail(entries, entry)
            elif _is_table(value) and _is_table(before):
                self._budget.take(value)
                _merge(before, value)
            else:
                self._budget.take(value)
                self._fields[name] = value

    def _add_detail(self, entries: list[Any], entry: Any) -> None:
        known = _continued(entries, entry)
        if known is None:
            self._budget.take(entry)
            entries.append(entry)
            return
        for key, value in entry.items():
            if key in _GROWING and isinstance(value, str):
                _append(known, key, value, self._budget)
            elif known.get(key) is None:
                self._budget.take({key: value})
                known[key] = value


def _append(into: dict[str, Any], key: str, text: str, budget: ExtrasBudget) -> None:
    budget.take(text)
    before = into.get(key)
    if isinstance(before, _Pieces):
        before.append(text)
    else:
        into[key] = _Pieces([before, text] if isinstance(before, str) else [text])


def _joined(value: Any) -> Any:
    """The value with every text whole."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if _is_table(value):
        return {key: _joined(each) for key, each in value.items()}
    return [_joined(each) for each in value] if _is_list(value) else value


def _continued(entries: list[Any], entry: Any) -> dict[str, Any] | None:
    """The entry of which ``entry`` is one more piece: of the same index, type and id.

    Without an index it is the last one, unless that is signed, or either is encrypted: encrypted entries come whole.
    """
    if not _is_table(entry):
        return None
    index = entry.get("index")
    for known in reversed(entries if index is not None else entries[-1:]):
        if not _is_table(known):
            continue
        if (known.get("index"), known.get("type")) != (index, entry.get("type")):
            continue
        if entry.get("id") and known.get("id") and entry["id"] != known["id"]:
            continue
        if index is None and (entry.get("type") == _WHOLE or known.get("signature")):
            continue
        return known
    return None


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        before: Any = into.get(key)
        if _is_table(before) and _is_table(value):
            _merge(before, value)
        else:
            into[key] = value


def thought_of(fields: Mapping[str, Any] | None) -> str:
    """What a person can read of the reasoning in a message's extras, or in a piece of them."""
    if not fields:
        return ""
    for name in ("reasoning_content", "reasoning"):
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    details = fields.get("reasoning_details")
    if not _is_list(details):
        return ""
    parts: list[str] = []
    for entry in details:
        if _is_table(entry):
            parts += [text for text in (entry.get("text"), entry.get("summary")) if isinstance(text, str)]
    return "".join(parts)
