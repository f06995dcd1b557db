"""Token ids in the events of a conversation.

A prompt repeats the tokens of the call before, so an event has the number of ids that it shares with the prompt and the
completion of that call, and the ids after them. Ids are packed: as JSON numbers they would be larger, and a secret of
digits that is removed from events could be found in them.
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.models.call_trace import TokenIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hermes_exec_agent.models.messages import Message

_IDS, _LOGPROBS = "I", "d"


class DamagedTokens(ValueError):
    """A record of tokens does not fit those before it."""


@dataclass(slots=True)
class TokenRecorder:
    """Packs the tokens of one conversation's calls, in order."""

    clean: Callable[[str], str]
    """Removes secrets from text."""
    _before: array[int] = field(default_factory=lambda: array(_IDS))
    _checked: int = 0
    """Messages that are known to have no secret."""

    def pack(self, tokens: TokenIds, prompt: Sequence[Message], reply: Message) -> dict[str, Any]:
        """Return the record of a call's tokens.

        Ids spell their text, so a call whose text has a secret gets a record without any.
        """
        self._checked = min(self._checked, len(prompt))
        if not all(self._is_clean(each) for each in (*prompt[self._checked :], reply)):
            self._before, self._checked = array(_IDS), 0
            return {"redacted": True}
        self._checked = len(prompt)
        whole = array(_IDS, tokens.prompt)
        shared = count_shared(self._before, whole)
        self._before = whole + array(_IDS, tokens.completion)
        return {
            "shared": shared,
            "prompt": _encode(whole[shared:]),
            "completion": _encode(array(_IDS, tokens.completion)),
            "logprobs": _encode(array(_LOGPROBS, tokens.logprobs)),
        }

    def _is_clean(self, message: Message) -> bool:
        texts = [message.content, *(call.arguments for call in message.tool_calls), *_list_texts(message.extras)]
        return all(self.clean(text) == text for text in texts)


@dataclass(slots=True)
class TokenReader:
    """Unpacks the records of one conversation's calls, in order."""

    _before: array[int] = field(default_factory=lambda: array(_IDS))

    def unpack(self, record: Mapping[str, Any]) -> TokenIds | None:
        """Return the tokens of a record; None if it has none, as its text has a secret.

        Raises:
            DamagedTokens: it does not fit the records before it.
        """
        if record.get("redacted"):
            self._before = array(_IDS)
            return None
        shared = int(record["shared"])
        if not 0 <= shared <= len(self._before):
            raise DamagedTokens("more shared tokens than the call before has")
        prompt = self._before[:shared] + _decode(record["prompt"], _IDS)
        completion, logprobs = _decode(record["completion"], _IDS), _decode(record["logprobs"], _LOGPROBS)
        if len(completion) != len(logprobs):
            raise DamagedTokens("not one logprob for each token")
        self._before = prompt + completion
        return TokenIds(tuple(prompt), tuple(completion), tuple(logprobs))


def count_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of equal ids at the beginning of both."""
    if len(one) <= len(other) and one == other[: len(one)]:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _encode(values: array[Any]) -> str:
    if sys.byteorder != "little":
        values = values[:]
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode()


def _decode(text: object, kind: str) -> array[Any]:
    values: array[Any] = array(kind)
    try:
        values.frombytes(base64.b64decode(str(text), validate=True))
    except (ValueError, binascii.Error) as error:
        raise DamagedTokens(str(error)) from None
    if sys.byteorder != "little":
        values.byteswap()
    return values


def _list_texts(value: object) -> Iterable[str]:
    """Yield all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():  # pyright: ignore[reportUnknownVariableType]  JSON
            yield from _list_texts(each)  # pyright: ignore[reportUnknownArgumentType]  JSON
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]  JSON
            yield from _list_texts(each)  # pyright: ignore[reportUnknownArgumentType]  JSON
