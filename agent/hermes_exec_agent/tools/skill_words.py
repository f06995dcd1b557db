"""Ranks skills by the words that they have in common with a request."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")
_WORD = re.compile(r"[^\W_]+")
_ENDING = re.compile(r"(?<=[^\W_]\.)[^\W_]{2,5}\b")
"""The ending of a file's name."""
_COMMON_WORDS = (
    "a able about above across act actually add after again against age ago all almost alone along already also "
    "although always am among an and another answer any anybody anyone anything anyway are area around as ask "
    "asked at away back bad be because become been before began begin behind being believe below best "
    "better between big bit both bring brought but buy by call called came can cannot car carry case certain "
    "change check children clear close cold come comes coming cool could country course create cut day days did "
    "didn different do does doesn doing don done door down during each early easy eat either else end enough "
    "especially etc even evening ever every everybody everyone everything exactly example eyes face fact family "
    "far fast feel feels few file files final find fine first five folder follow for found four friend from front "
    "full fun further gave general get gets getting give given gives go goes going gone good got great ground "
    "group grow had half hand hands happen happened hard has hasn have haven having he head hear heard heart help "
    "her here hers herself hey high him himself his hold home hot hour hours house how however hundred i idea if "
    "important in inside instead into is isn it its itself job just keep kept kid kids kind knew know known large "
    "last late later least leave left less let life light like likely line list little live living ll long longer "
    "look looked looking looks lot low made main make makes making man many matter may maybe me mean means men "
    "might mind mine minute minutes moment money month months more morning most mother mouth move much must my "
    "myself name named near need needs never new next nice night no none nor not nothing now number of off "
    "often oh ok okay old on once one ones only onto open or order other others our ours out outside over own "
    "part parts past people perhaps person piece place play please point possible pretty probably problem put "
    "question questions quick quickly quite ran rather re read ready real really reason red right room round run "
    "running runs safe said same saw say says second seconds see seem seems seen send sentence set seven several "
    "she short should show shown side simple since six skill sleep small so some someone something "
    "sometimes somewhere soon sorry sort stand start started stay still stop story strong such suddenly sure take "
    "taken takes taking talk tell ten than thank thanks that the their theirs them themselves then there these "
    "they thing things think third this those though thought thousand three through till time times to today "
    "together told tomorrow tonight too took top toward town tried true try trying turn twice two under "
    "understand until up upon us use used user users uses using usually various ve very via wait walk want wanted "
    "wants was wasn water way ways we week weeks well went were weren what whatever when whenever where whether "
    "which while white who whole whom whose why will wish with within without woman women won word words work "
    "worked working works world worse worst would wouldn write writing written wrong year years yes yesterday yet "
    "you young your yours yourself "
)
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words of everyday English, which say little about a subject."""
_NAME_WEIGHT = 1.5
_BEGINNING_WEIGHT = 0.6
"""The weight of a word of which only the beginning is the same."""
_PREFIX = 5
"""Letters that two words must have in common if one is the beginning of the other, such as ``async``."""
_USUAL_COUNT = 16
"""Words of a request up to which each counts in full: a long text has some words in common with every skill."""
_MOST_EVIDENCE = 3.0
_LONGEST_REQUEST = 8000


@dataclass(frozen=True, slots=True)
class WordMatch:
    """The words that a request and a skill have in common."""

    score: float
    """The sum of their weights: 1 for a rare word of the description, more for one of the name."""
    count: int
    """How many there are; the ending of a file's name counts twice, and a complete name of several words, too."""

    @property
    def evidence(self) -> float:
        """The score, bounded; half of it for a single word, which may be an accident."""
        return min(self.score if self.count > 1 else self.score / 2, _MOST_EVIDENCE)


class WordIndex:
    """The words of the names and descriptions of skills."""

    def __init__(self, texts: Sequence[tuple[str, str]], ignored: frozenset[str] = _COMMON) -> None:
        """``texts`` are pairs of a name and a description; words of ``ignored`` are left out."""
        self._ignored = ignored
        self._size = len(texts)
        self._weights: dict[str, dict[int, float]] = {}
        self._beginnings: dict[str, list[str]] = {}
        self._names = [_stem_all(name) for name, _ in texts]
        for number, (name, about) in enumerate(texts):
            weights = dict.fromkeys(self._split(about), 1.0) | dict.fromkeys(self._split(name), _NAME_WEIGHT)
            for word, weight in weights.items():
                self._weights.setdefault(word, {})[number] = weight
        for word in self._weights:
            if len(word) >= _PREFIX:
                self._beginnings.setdefault(word[:_PREFIX], []).append(word)

    def match(self, request: str) -> dict[int, WordMatch]:
        """Return the match of each skill that has a word of the request, by its number."""
        text = request[:_LONGEST_REQUEST]
        words = self._split(text)
        endings = self._split(" ".join(_ENDING.findall(text)))
        sums: dict[int, tuple[float, int]] = {}
        for word in words:
            found = self._find(word)
            for number, weight in found.items():
                score, count = sums.get(number, (0.0, 0))
                score += weight * self._measure_rarity(len(found))
                sums[number] = score, count + (2 if word in endings else 1)
        for number in self._find_by_name(text):
            score, count = sums.get(number, (0.0, 0))
            sums[number] = score + _NAME_WEIGHT, count + 2
        part = 1 / max(1.0, math.sqrt(len(words) / _USUAL_COUNT))
        return {number: WordMatch(score * part, count) for number, (score, count) in sums.items()}

    def _split(self, text: str) -> frozenset[str]:
        """Return the stems of the words that tell something; numbers tell nothing."""
        words = _WORD.findall(text.casefold())
        telling = (each for each in words if len(each) > 1 and not each.isdigit())
        return frozenset(_stem(each) for each in telling if each not in self._ignored)

    def _find_by_name(self, text: str) -> list[int]:
        """Return the skills of whose names, of two words or more, the text has each word, also a common one."""
        words = _stem_all(text)
        return [number for number, name in enumerate(self._names) if len(name) > 1 and name <= words]

    def _find(self, word: str) -> dict[int, float]:
        """Return the weight of a word in each skill that has it, or one that begins alike."""
        found = dict(self._weights.get(word, {}))
        for other in self._list_alike(word):
            for number, weight in self._weights[other].items():
                found[number] = max(found.get(number, 0.0), weight * _BEGINNING_WEIGHT)
        return found

    def _list_alike(self, word: str) -> Iterator[str]:
        if len(word) >= _PREFIX:
            for other in self._beginnings.get(word[:_PREFIX], ()):
                if other != word and (other.startswith(word) or word.startswith(other)):
                    yield other

    def _measure_rarity(self, count: int) -> float:
        """Return 1 for a word of one skill, and less for one of several, whatever the number of skills is."""
        return math.log((self._size + 1) / count) / math.log(self._size + 1)


def rank(query: str, candidates: Sequence[tuple[T, str, str]]) -> list[T]:
    """Rank items by the words of ``query``, best first; those without any of them are left out.

    A word counts the more, the fewer items have it, and more in a name than in a description. Common words count only
    if no item has another one.

    Args:
        query: a few words.
        candidates: items, each with its name and its description.
    """
    texts = [(name, about) for _, name, about in candidates]
    found = WordIndex(texts).match(query) or WordIndex(texts, frozenset()).match(query)
    return [candidates[number][0] for number in sorted(found, key=lambda number: -found[number].score)]


def _stem_all(text: str) -> frozenset[str]:
    return frozenset(map(_stem, _WORD.findall(text.casefold())))


def _stem(word: str) -> str:
    """Return a word without its English ending, so that ``debugging`` and ``debug`` are one."""
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(ending) and len(word) - len(ending) >= _PREFIX - 2 and not word.endswith("ss"):
            word = word.removesuffix(ending) + instead
            break
    return word[:-1] if len(word) > _PREFIX - 1 and word[-1] == word[-2] else word
