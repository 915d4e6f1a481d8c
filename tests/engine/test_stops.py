"""Case A01: whatever the cut into pieces, what is shown is everything before the first stop text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits.engine.stops import StopMatcher


def before_first(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The definition: the text before the earliest beginning of a stop, and the shortest stop that begins there."""
    for i in range(len(text)):
        if found := [stop for stop in stops if text.startswith(stop, i)]:
            return text[:i], min(found, key=len)
    return text, None


def show(kind: type[StopMatcher], pieces: Sequence[str], stops: Sequence[str]) -> tuple[list[str], str | None]:
    matcher = kind(stops)
    shown = [matcher.push(piece) for piece in pieces]
    return [*shown, matcher.finish()], matcher.matched


def check(kind: type[StopMatcher], pieces: Sequence[str], stops: Sequence[str]) -> None:
    shown, matched = show(kind, pieces, stops)
    assert ("".join(shown), matched) == before_first("".join(pieces), stops)
    # Nothing is held that cannot belong to a stop: after each push, what is not shown is the beginning of one.
    for end in range(1, len(pieces)):
        so_far = "".join(pieces[:end])
        if before_first(so_far, stops)[1] is None:
            held = so_far[len("".join(shown[:end])) :]
            assert not held or any(stop.startswith(held[: len(stop)]) for stop in stops), "text is held for nothing"


PIECES = st.lists(st.text("abc", max_size=4), max_size=12)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """One text cut in two ways."""
    text = draw(st.text("abc", max_size=30))

    def cut() -> list[str]:
        at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
        return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]

    return cut(), cut()


@settings(max_examples=1500)
@given(PIECES, STOPS)
def test_any_cut_shows_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    check(StopMatcher, pieces, stops)


def check_cuts(kind: type[StopMatcher], pieces: tuple[list[str], list[str]], stops: list[str]) -> None:
    (one, first), (other, second) = (show(kind, cut, stops) for cut in pieces)
    assert ("".join(one), first) == ("".join(other), second)


@settings(max_examples=1500)
@given(cuts(), STOPS)
def test_no_cut_changes_the_text_or_the_stop(pieces: tuple[list[str], list[str]], stops: list[str]) -> None:
    check_cuts(StopMatcher, pieces, stops)


class HoldsNothing(StopMatcher):
    """Sees only stops that one piece holds."""

    def _pending(self) -> int | None:
        return None


class TakesTheFirstComplete(StopMatcher):
    """Does not wait for a stop that began earlier."""

    def push(self, text: str) -> str:
        if self.matched is None and any(stop in self._held + text for stop in self._stops):
            self.matched = next(stop for stop in self._stops if stop in self._held + text)
            shown, self._held = (self._held + text).split(self.matched)[0], ""
            return shown
        return super().push(text)


class PrefersTheLongest(StopMatcher):
    """Of stops that begin together the longest that has come, which hangs on the pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        super().__init__(stops)
        self._stops = self._stops[::-1]


@pytest.mark.parametrize("kind", [HoldsNothing, TakesTheFirstComplete, PrefersTheLongest])
def test_control_a_faulty_matcher_is_seen(kind: type[StopMatcher]) -> None:
    @settings(max_examples=1500, database=None, derandomize=True, report_multiple_bugs=False)
    @given(PIECES, STOPS)
    def run(pieces: list[str], stops: list[str]) -> None:
        check(kind, pieces, stops)

    with pytest.raises(AssertionError):
        run()


def test_control_a_stop_that_hangs_on_the_cut_is_seen() -> None:
    @settings(max_examples=1500, database=None, derandomize=True, report_multiple_bugs=False)
    @given(cuts(), STOPS)
    def run(pieces: tuple[list[str], list[str]], stops: list[str]) -> None:
        check_cuts(PrefersTheLongest, pieces, stops)

    with pytest.raises(AssertionError):
        run()


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "matched"),
    [
        ([" D", " E", " F", " G", " H"], ["D E F G"], [" ", "", "", "", "", ""], "D E F G"),
        (["x", "\n", "Q", ":", "y"], ["\nQ:"], ["x", "", "", "", "", ""], "\nQ:"),
        (["one tw", "o three"], ["wo th"], ["one t", "", ""], "wo th"),  # cuts two words in half
        (["x\n", "Qu", "it"], ["\nQ:"], ["x", "\nQu", "it", ""], None),  # held text is released
        (["x\n", "Q"], ["\nQ:"], ["x", "", "\nQ"], None),  # and at the end
        (["xabc"], ["ab", "abc"], ["x", ""], "ab"),
        (["xabc"], ["abc", "ab"], ["x", ""], "ab"),
        (["xab", "c"], ["ab", "abc"], ["x", "", ""], "ab"),
        (["xabc"], ["bc", "abcd"], ["x", "a"], "bc"),  # the longer one never completes
        (["xabc", "d"], ["bc", "abcd"], ["x", "", ""], "abcd"),
        (["aaa", "b"], ["aab"], ["a", "", ""], "aab"),
        (["anything"], [], ["anything", ""], None),
    ],
)
def test_written_out(pieces: list[str], stops: list[str], shown: list[str], matched: str | None) -> None:
    assert show(StopMatcher, pieces, stops) == (shown, matched)


def test_after_a_match_nothing_is_shown() -> None:
    matcher = StopMatcher(["b"])
    assert [matcher.push(t) for t in ("ab", "c", "b")] == ["a", "", ""]
    assert matcher.finish() == ""
    assert matcher.matched == "b"
