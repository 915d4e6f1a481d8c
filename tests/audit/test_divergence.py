"""First differences over all pairs, against the plain double loop."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from samebits.audit.divergence import common_prefix, count_divergence, divergence
from samebits.audit.observation import Observation


def by_pairs(texts: list[str]) -> tuple[int, Counter[int]]:
    places: Counter[int] = Counter()
    equal = 0
    for a, b in itertools.combinations(texts, 2):
        if a == b:
            equal += 1
        else:
            places[next((i for i in range(min(len(a), len(b))) if a[i] != b[i]), min(len(a), len(b)))] += 1
    return equal, places


@given(st.lists(st.text("ab", max_size=6), max_size=12))
def test_all_pairs_as_by_the_double_loop(texts: list[str]) -> None:
    found = count_divergence("characters", Counter(texts))
    equal, places = by_pairs(texts)
    assert found.equal_pairs == equal
    assert dict(zip(found.places, found.pairs, strict=True)) == places
    assert found.all_pairs == len(texts) * (len(texts) - 1) // 2
    for length in range(8):
        agree = equal + sum(n for place, n in places.items() if place >= length)
        if found.all_pairs:
            assert found.survival(length) == 1 - (found.all_pairs - agree) / found.all_pairs


def test_places_by_hand() -> None:
    found = count_divergence("characters", {"aaaa": 1, "aaab": 1, "abaa": 2})
    assert (found.equal_pairs, found.places, found.pairs) == (1, (1, 3), (4, 1))
    assert found.first == 1
    same = count_divergence("characters", {"a": 5})
    assert (same.first, same.survival(100)) == (None, 1.0)


def test_tokens_are_counted_where_all_runs_have_them() -> None:
    one = Observation(target="t", prompt_id="p", run=0, text="ab cd", token_ids=(1, 2))
    other = Observation(target="t", prompt_id="p", run=1, text="ab ce", token_ids=(1, 3))
    bare = Observation(target="t", prompt_id="p", run=2, text="ab cf")
    named = Observation(target="t", prompt_id="p", run=3, text="ab cf", tokens=("ab", " cf"))
    failed = Observation(target="t", prompt_id="p", run=4, error="e")
    assert (divergence([one, other, failed]).unit, divergence([one, other, failed]).first) == ("token ids", 1)
    assert (divergence([one, other, bare]).unit, divergence([one, other, bare]).first) == ("characters", 4)
    assert (divergence([named, named]).unit, divergence([named, named]).first) == ("tokens", None)


def test_common_prefix() -> None:
    assert [common_prefix(*p) for p in (("", "a"), ("ab", "ab"), ("abc", "abd"), ((1, 2), (1,)))] == [0, 2, 2, 1]
