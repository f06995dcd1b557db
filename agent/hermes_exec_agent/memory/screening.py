"""Texts that may not be remembered, and entries that a prompt withholds.

Hidden characters, look-alike letters and secrets are refused. A short list of certain patterns withholds an entry: it
stays in the file, and a prompt has the reason in its place. A pattern matches an order, and not a text about orders: at
the beginning of a sentence, and outside of quotes.
"""

from __future__ import annotations

import functools
import re
import unicodedata

_QUOTED = re.compile(r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|「[^」\n]*」|'(?<![\w]')[^'\n]*'(?!\w)")
_ROLE = re.compile(
    r"<\|?(?:im_start|im_sep|start_header_id|start_of_turn|system|assistant|developer|user)\|?>\s*\S"
    r"|\[/?INST\]|<</?SYS>>|</(?:system|assistant|developer|instructions?|memory)>"
    r"|^\s*#{1,6}\s*(?:system|assistant|developer)(?:\s+(?:prompt|message))?\s*:"
    r"|^\s*(?:\[?(?:system|developer)\s+(?:message|prompt|override|notice|update)\]?|assistant|developer)\s*:"
    r"|\[notice of the agent's program\]",
    re.IGNORECASE | re.MULTILINE,
)
_CALL = re.compile(
    r"</?(?:tool_call|tool_calls|function_calls?|tool_use|invoke|antml:\w+)\b[^>]*>|\[TOOL_CALLS\]|<function=\w"
    r"|<\|(?:tool_call\w*|python_tag|channel)\|?>"
    r"|\{\s*\"(?:name|tool|function)\"\s*:\s*\"\w+\"\s*,\s*\"(?:arguments|parameters|input|args)\"\s*:",
    re.IGNORECASE,
)
_START = r"(?:^|[.!?;:,>*\-—]\s*|\b(?:please|now|and|then|must|should|to|bitte|por favor|s'il te plaît)\s+)"
_IGNORE = (
    # English
    _START + r"(?:ignore|disregard|forget|override|bypass)\s+(?:\w+\s+){0,3}?(?:previous|prior|above|earlier|preceding|"
    r"former|existing)\s+(?:\w+\s+)?(?:instructions?|rules|directions|prompts?|guidelines|orders)",
    # Spanish, Portuguese, French
    _START + r"(?:ignora|ignore|olvida|omite|descarta)\s+(?:\w+\s+){0,3}?(?:instrucciones|reglas|órdenes)\s+(?:\w+\s+)?"
    r"(?:anteriores|previas)",
    _START + r"(?:ignore|ignora|esqueça|desconsidere)\s+(?:\w+\s+){0,3}?(?:instruções|regras|ordens)\s+(?:\w+\s+)?"
    r"(?:anteriores|prévias)",
    _START + r"(?:ignore[zr]?|oublie[zr]?)\s+(?:\w+\s+){0,3}?(?:instructions|consignes|règles)\s+(?:\w+\s+)?"
    r"(?:précédentes|antérieures)",
    # German
    _START + r"(?:ignorier(?:e|en sie)?|vergiss|missachte)\s+(?:\w+\s+){0,3}?(?:vorherigen?|bisherigen?|früheren?|"
    r"obigen?)\s+(?:\w+\s+)?(?:anweisungen|regeln|befehle)",
    # Russian
    _START + r"(?:игнорируй(?:те)?|проигнорируй(?:те)?|забудь(?:те)?)\s+(?:\w+\s+){0,2}?(?:предыдущие|прежние)\s+"
    r"(?:\w+\s+)?(?:инструкции|указания|правила)",
    # Chinese, Japanese
    r"(?:忽略|无视|忽視|無視|忘记|忘記)(?:\w){0,4}?(?:之前|以前|先前|上述|以上)的?(?:\w){0,4}?(?:指令|指示|说明|規則|规则|提示)",
    r"(?:これまで|以前|前|上記|先)の?(?:すべての|全ての)?(?:指示|命令|ルール)を?(?:すべて)?(?:無視|忘れ)(?:して|しろ|せよ|なさい|て)",
    # Hindi, Bengali, Urdu, Arabic
    r"(?:पिछले|पूर्व|पहले)\s+(?:\S+\s+){0,3}?(?:निर्देशों|निर्देश|नियमों)\s+(?:\S+\s+)?(?:अनदेखा|नज़रअंदाज़|नजरअंदाज|भूल)",
    r"(?:আগের|পূর্ববর্তী)\s+(?:\S+\s+){0,2}?(?:নির্দেশাবলী|নির্দেশনা|নির্দেশ|নিয়ম)\s+(?:\S+\s+)?(?:উপেক্ষা|ভুলে)",
    r"(?:پچھلی|سابقہ)\s+(?:\S+\s+){0,2}?(?:ہدایات|احکامات)\s+(?:\S+\s+)?(?:نظر\s*انداز|بھول)",
    r"(?:تجاهل|تجاهلي|انس)\s+(?:\S+\s+){0,2}?(?:التعليمات|الأوامر|القواعد)\s+(?:\S+\s+)?(?:السابقة)",
)
_QUOTATION = re.compile(r'\A\[from [^\]]*\] "(.*)"\Z', re.DOTALL)
"""The form of an entry that `memory.origins` creates for untrusted text."""


def find_refusal(text: str) -> str:
    """Return why a text may not be remembered; empty if it may."""
    from hermes_exec_agent.memory.credentials import find_credential
    from hermes_exec_policies.gate.text_checks import find_hidden, find_lookalike, find_secret

    if hidden := find_hidden(text):
        return f"a hidden character, {hidden.name}"
    if find_lookalike(text):
        return "a word with look-alike letters of another alphabet"
    if kind := find_secret(text) or find_credential(text):
        return f"a secret ({kind})"
    return ""


def find_withholding(text: str) -> str:
    """Return why a prompt withholds an entry, in a few words; empty if it shows the entry.

    What a text quotes is not an order of its own, except for untrusted text that was remembered as a quotation.
    """
    if reason := find_refusal(text):
        return reason
    if quotation := _QUOTATION.match(text):
        return find_withholding(quotation[1])
    plain = unicodedata.normalize("NFKC", text)
    bare = _QUOTED.sub(" ", plain)
    if _ROLE.search(bare):
        return "a role marker"
    if _CALL.search(bare) or _CALL.search(plain):
        return "the syntax of a tool call"
    if _compile_orders().search(bare):
        return "an order to ignore instructions"
    return ""


@functools.cache
def _compile_orders() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in _IGNORE), re.IGNORECASE | re.MULTILINE)
