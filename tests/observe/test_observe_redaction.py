"""Redaction: what is known is taken out, however it is spelt and wherever it is cut."""

from __future__ import annotations

import base64
import json
import shlex
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.config.secrets import Secret
from hermes_exec.observe.redact import SHORTEST, Redactor

VALUE = "hunter2/pass+wörd &\"'\\\n=end"
# The label must not hold a part of a value, or "the value is gone" would say nothing.
values = st.text(
    st.characters(exclude_characters="[]TOKEN secret", exclude_categories=["Cs"]),
    min_size=SHORTEST,
    max_size=40,
).filter(lambda text: "\0" not in text and len(set(text)) > 2)
texts = st.text(st.characters(exclude_characters="[]", exclude_categories=["Cs"]))


def redactor(*secrets: str) -> Redactor:
    return Redactor([Secret(f"TOKEN{n}" if n else "TOKEN", value) for n, value in enumerate(secrets)])


def test_a_secret_becomes_its_name() -> None:
    assert redactor("hunter2!").redact("a hunter2! b") == "a [secret TOKEN] b"
    assert redactor("hunter2!").redact_bytes(b"xhunter2!x") == b"x[secret TOKEN]x"


def test_text_without_a_secret_comes_back_as_it_is() -> None:
    text, data = "nothing \udc80 here", b"\xff\x00 nothing"
    assert redactor("hunter2!").redact(text) is text
    assert redactor("hunter2!").redact_bytes(data) is data


def test_without_secrets_there_is_nothing_to_do() -> None:
    text = "x"
    assert Redactor().redact(text) is text
    assert not Redactor()
    assert redactor("hunter2!")


@pytest.mark.parametrize(
    "spelt",
    [
        VALUE,
        urllib.parse.quote(VALUE),
        urllib.parse.quote(VALUE, safe=""),
        urllib.parse.quote_plus(VALUE),
        urllib.parse.quote(VALUE, safe="").lower(),
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        repr(VALUE),
        VALUE.replace("\n", "\r\n"),
    ],
)
def test_a_secret_is_found_in_other_spellings(spelt: str) -> None:
    clean = redactor(VALUE).redact(f"<{spelt}>")
    assert "[secret TOKEN]" in clean
    assert "hunter2" not in clean


@given(st.binary(max_size=5), st.binary(max_size=5), values)
def test_a_secret_is_found_inside_of_base64(before: bytes, after: bytes, value: str) -> None:
    whole = before + value.encode() + after
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert b"[secret TOKEN]" in redactor(value).redact_bytes(encode(whole))


@given(values, st.lists(texts))
def test_no_known_value_is_left(value: str, between: list[str]) -> None:
    assert value not in redactor(value).redact(value.join(["", *between, ""]))


def test_of_two_secrets_that_begin_alike_the_longer_one_is_named() -> None:
    assert redactor("hunter2", "hunter2-long").redact("hunter2-long hunter2") == "[secret TOKEN1] [secret TOKEN]"


@pytest.mark.parametrize("text", ["turn it on", "on", "(on)", "x=on,", "on.", "on\n"])
def test_a_short_secret_is_found_as_a_whole_word(text: str) -> None:
    assert redactor("on").redact(text) == text.replace("on", "[secret TOKEN]")


@pytest.mark.parametrize("text", ["once", "son", "x_on", "on1", "son of onon"])
def test_a_short_secret_is_not_looked_for_inside_of_words(text: str) -> None:
    assert redactor("on").redact(text) == text


def test_a_secret_with_signs_is_not_read_as_a_pattern() -> None:
    assert redactor("a.c*(e)|x").redact("abc a.c*(e)|x") == "abc [secret TOKEN]"


def test_a_quoted_argument_shows_no_secret() -> None:
    assert "hunter2" not in redactor("hunter2 !x").redact(shlex.quote("--password=hunter2 !x"))


pieces = st.lists(st.sampled_from([b"hunter2!", b"hunter2!zz", b"hun", b"on", b" ", b"x", b"!z", b"h", b"\xff", b"_"]))


@given(pieces, st.data())
def test_a_stream_gives_what_the_whole_would_have_given(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    secrets = redactor("hunter2!", "on", "hunter2!zz")
    stream = secrets.create_stream()
    given_out = [stream.feed(whole[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert b"".join([*given_out, stream.flush()]) == secrets.redact_bytes(whole)


def test_a_stream_of_single_bytes_hides_a_secret() -> None:
    stream = redactor(VALUE).create_stream()
    out = b"".join(stream.feed(bytes([byte])) for byte in f"a{VALUE}b".encode()) + stream.flush()
    assert out == b"a[secret TOKEN]b"


def test_a_stream_holds_back_only_what_could_become_a_secret() -> None:
    stream = redactor("hunter2!").create_stream()
    assert stream.feed(b"password? ") == b"password? "
    assert stream.feed(b"say hunt") == b"say "
    assert stream.pending_bytes == 4
    assert stream.feed(b"ing") == b"hunting"


def test_a_stream_never_holds_back_more_than_a_secret() -> None:
    stream = redactor("aaaaaaaaab").create_stream()
    held = 0
    for _ in range(100):
        stream.feed(b"a" * 7)
        held = max(held, stream.pending_bytes)
    assert held < 10


def test_flushing_gives_what_was_held_back_and_the_stream_goes_on() -> None:
    stream = redactor("hunter2!").create_stream()
    stream.feed(b"hunt")
    assert stream.flush() == b"hunt"
    assert stream.feed(b"hunter2! ") == b"[secret TOKEN] "
