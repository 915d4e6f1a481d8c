"""Numbers before nouns and verbs."""

from __future__ import annotations

import pytest

from samebits.counted import counted, part, verb


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (21, "21 runs"), (1001, "1,001 runs")]
)
def test_a_noun_follows_its_number(number: int, said: str) -> None:
    assert counted(number, "run") == said


def test_a_plural_of_its_own_and_verbs() -> None:
    assert [counted(n, "body", "bodies") for n in (1, 2)] == ["1 body", "2 bodies"]
    assert [verb(n, "has", "have") for n in (0, 1, 2)] == ["have", "has", "have"]
    assert part(1, 8, "run", "departs", "depart") == "1 of 8 runs departs"
    assert part(0, 1, "run", "departs", "depart") == "0 of 1 run depart"
    assert part(1200, 3000, "run") == "1,200 of 3,000 runs"
