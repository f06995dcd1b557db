"""A tokenizer for the endpoint of the tests: it renders prompts by a chat template, as a server of models does."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece

_DOCS = Path(__file__).parents[2] / "docs"
END = "<|im_end|>\n"


@cache
def load_tokenizer() -> Any:
    """Train a tokenizer on the documentation; any text can be encoded, byte by byte where it has to be."""
    lines = [line for name in ("chat.md", "tools.md") for line in (_DOCS / name).read_text().splitlines() if line]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=1200, byte_fallback=True, model_type="bpe",
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
        user_defined_symbols=["<|im_start|>", "<|im_end|>", "\n"], minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def render(message: dict[str, Any], *, thoughts: bool = True) -> str:
    """Render a message; what follows the line of an assistant's role is what its model wrote."""
    parts: list[str] = []
    if thoughts and message.get("reasoning_content"):
        parts.append(f"<think>{message['reasoning_content']}</think>")
    parts.append(message.get("content") or "")
    parts += [f"<tool_call>{json.dumps(each['function'])}</tool_call>" for each in message.get("tool_calls") or ()]
    return f"<|im_start|>{message['role']}\n{''.join(parts)}{END}"


class ChatTokenizer:
    """Tokenizes each message by itself, as servers that render ids do."""

    def __init__(self, *, thoughts: bool = True, as_text: bool = False, forget: bool = False) -> None:
        """Tokenize.

        Args:
            thoughts: whether earlier thoughts stay in a prompt.
            as_text: whether the whole prompt is one text, which splits words at other places than the model did.
            forget: whether ids are left out.
        """
        self._thoughts = thoughts
        self._as_text = as_text
        self._forget = forget

    def encode(self, text: str) -> list[int]:
        ids: list[int] = load_tokenizer().encode(text)
        return ids

    def list_prompt(self, messages: list[dict[str, Any]]) -> list[int]:
        texts = [render(each, thoughts=self._thoughts) for each in messages]
        texts.append("<|im_start|>assistant\n")
        if self._as_text:
            return self.encode("".join(texts))
        return [id for text in texts for piece in _split(text) for id in self.encode(piece)]

    def add_ids(self, completion: dict[str, Any], body: dict[str, Any]) -> None:
        """Add the ids, and a logprob for each of the completion's."""
        choice = completion["choices"][0]
        written = render(choice["message"]).partition("\n")[2]
        ids = (
            [id for piece in _split_word(written) for id in self.encode(piece)]
            if self._as_text
            else self.encode(written)
        )
        if self._forget:
            return
        completion["prompt_token_ids"] = self.list_prompt(body["messages"])
        choice["token_ids"] = ids
        choice["logprobs"] = {
            "content": [
                {"token": str(id), "logprob": -0.01 * (place % 100), "bytes": None, "top_logprobs": []}
                for place, id in enumerate(ids)
            ]
        }


def _split(text: str) -> list[str]:
    """Split the line of the role from the rest, which a model may have written."""
    head, line, rest = text.partition("\n")
    return [head + line, rest] if rest else [head + line]


def _split_word(text: str) -> list[str]:
    """Split in the middle of a word, as sampling may."""
    place = text.find("Done") + 2
    return [text[:place], text[place:]] if place > 1 else [text]
