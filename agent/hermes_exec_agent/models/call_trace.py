"""The parts of a reply that a trainer needs: sampling settings, the request's id, and token ids with logprobs.

vLLM and SGLang return the ids of the prompt and of the completion to requests with ``return_token_ids``. They are never
computed here: another tokenizer, or the same one with another template, yields other ids.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from hermes_exec_agent.errors import ModelError

Capture = Literal["none", "tokens"]
"""Whether requests ask for token ids and logprobs."""
_MOST = 1 << 32


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings that a request has; the endpoint's own where one is None."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the fields of a request."""
        fields = {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TokenIds:
    """The tokens of one request and its reply, as the endpoint counted them."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms, one for each id of the completion."""


@dataclass(frozen=True, slots=True)
class CallTrace:
    """What is recorded of a request besides its reply."""

    sampling: dict[str, Any] = field(default_factory=dict[str, Any])
    """The settings that were sent, with the limit of tokens."""
    request_id: str = ""
    """The endpoint's id of the request, as its support asks for it."""
    tokens: TokenIds | None = None


def read_tokens(name: str, completion: dict[str, Any]) -> TokenIds:
    """Return the token ids of a reply.

    Raises:
        ModelError: they are missing, or do not fit each other.
    """
    choice: dict[str, Any] = completion["choices"][0]  # it has been assembled
    prompt, written = completion.get("prompt_token_ids"), choice.get("token_ids")
    if prompt is None or written is None:
        missing = "prompt_token_ids" if prompt is None else "token_ids"
        raise ModelError(
            f"{name}: the reply has no {missing}, so that its tokens are not known",
            remedy="vLLM 0.10.2 or SGLang 0.5.18 and newer; or no --capture tokens",
        )
    entries: Any = choice.get("logprobs") or {}
    try:
        logprobs = tuple(float(each["logprob"]) for each in entries.get("content") or ())
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        logprobs = ()
    found = TokenIds(_read_ids(name, prompt), _read_ids(name, written), logprobs)
    if not found.prompt or len(found.completion) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise ModelError(
            f"{name}: the reply has {len(found.completion)} token ids and {len(logprobs)} logprobs of them",
            remedy="an endpoint that returns one finite logprob for each token",
        )
    return found


def _read_ids(name: str, value: object) -> tuple[int, ...]:
    ids: list[int] = []
    for each in cast("list[object]", value) if isinstance(value, list) else [None]:
        if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each < _MOST:
            raise ModelError(f"{name}: the reply has token ids that are not numbers", remedy="another endpoint")
        ids.append(each)
    return tuple(ids)
