"""Seven ways in which two answers can be the same, kept apart: equal in one says nothing about another."""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from samebits.audit.observation import Observation

View = Literal["body", "text", "token_ids", "logprobs", "parsed", "answer", "semantic"]
VIEWS: Final[tuple[View, ...]] = get_args(View)
# Codes of runs without a value.
FAILED: Final = -1
WITHOUT: Final = -2

# A number as people write it; groups of three digits may be parted by a comma, a no-break or a thin space.
_NUMBER: Final = re.compile(r"[-−]?(?:\d{1,3}(?:[,\u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?")
_SEPARATOR: Final = re.compile(r"[,\u00a0\u2009\u202f]")
_SENTENCE_MARK: Final = re.compile(r"[.,;:!?…]+(?=\s|$)|[\"“”„«»]")
_WORD: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class MeaningName:
    """What results tell about a measure of equal meaning.

    Attributes:
        name: of the measure.
        description: what it does, and what it misses.
    """

    name: str
    description: str


@dataclass(frozen=True)
class Meaning(MeaningName):
    """A measure of equal meaning.

    Attributes:
        key: texts with unequal keys differ in meaning.
        same: whether two texts with equal keys mean the same; None: always.
    """

    key: Callable[[str], Hashable]
    same: Callable[[str, str], bool] | None = None


def words(text: str) -> tuple[str, ...]:
    """The words and symbols of a text, in order.

    Unicode form NFKC, case folded; spaces, double quotes and the marks that end a word or sentence are left out.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return tuple(_WORD.findall(_SENTENCE_MARK.sub(" ", plain)))


def numbers(text: str) -> tuple[str, ...]:
    """The numbers of a text, in order: any digits, without separators of thousands and without zeros at either end.

    >>> numbers("1,000 at 2.50, not −3")
    ('1000', '2.5', '-3')
    """
    latin = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    found = []
    for match in _NUMBER.findall(latin):
        whole, _, fraction = _SEPARATOR.sub("", match.lstrip("-−")).partition(".")
        fraction = fraction.rstrip("0")
        sign = "-" if match[0] in "-−" else ""
        found.append(sign + (whole.lstrip("0") or "0") + ("." + fraction if fraction else ""))
    return tuple(found)


SAME_WORDS: Final = Meaning(
    "same words",
    "the same words and numbers in the same order, whatever their case, spacing and marks at the end of a word; "
    "another wording counts as another meaning, so agreement is at least this",
    key=lambda text: (numbers(text), words(text)),
)


def word_overlap(least: float) -> Meaning:
    """Equal when the sets of words share at least this part of their union (Jaccard index) and all numbers are equal.

    It takes many paraphrases for equal, and some texts that say the opposite: "not" is one word among many.
    """

    def same(a: str, b: str) -> bool:
        one, other = set(words(a)), set(words(b))
        return len(one & other) >= least * len(one | other)

    return Meaning(
        f"word overlap of at least {least:g}",
        "the same numbers in the same order, and this share of all words in both texts, in any order",
        key=numbers,
        same=same,
    )


def key_of(view: View, observation: Observation) -> Hashable | None:
    """What is equal when two answers are equal in a view other than ``semantic``; None where there is no value."""
    if view == "logprobs":
        scores = observation.logprobs
        return None if scores is None else struct.pack(f"<{len(scores)}d", *(x if x == x else np.nan for x in scores))
    value: Hashable | None = getattr(observation, view)
    return value


def classify(observations: Sequence[Observation], view: View, meaning: Meaning = SAME_WORDS) -> NDArray[np.int64]:
    """A number for each run of one prompt: equal numbers are equal answers, counted in order of first appearance.

    Failed runs are `FAILED`, answered runs without a value `WITHOUT`. Semantic classes are built one after the other: a
    text joins the first class whose first text means the same.
    """
    codes = np.empty(len(observations), np.int64)
    seen: dict[Hashable, int] = {}
    meanings = _Meanings(meaning)
    for i, observation in enumerate(observations):
        if observation.text is None:
            codes[i] = FAILED
            continue
        key = observation.text if view == "semantic" else key_of(view, observation)
        if key is None:
            codes[i] = WITHOUT
            continue
        if key not in seen:
            seen[key] = meanings.code(observation.text) if view == "semantic" else len(seen)
        codes[i] = seen[key]
    return codes


class _Meanings:
    """Classes of meaning met so far: for each key of the measure, the first text of each class and its code."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._leaders: dict[Hashable, list[tuple[str, int]]] = {}
        self._count = 0

    def code(self, text: str) -> int:
        leaders = self._leaders.setdefault(self._meaning.key(text), [])
        for leader, code in leaders:
            if self._meaning.same is None or self._meaning.same(text, leader):
                return code
        leaders.append((text, self._count))
        self._count += 1
        return self._count - 1


def by_prompt(observations: Sequence[Observation]) -> Mapping[str, list[Observation]]:
    """The observations of each prompt, in the order given; prompts in order of their ids."""
    grouped: dict[str, list[Observation]] = {}
    for observation in observations:
        grouped.setdefault(observation.prompt_id, []).append(observation)
    return dict(sorted(grouped.items()))
