"""Foreign texts become visible; numbers are never rounded to what they are not."""

from __future__ import annotations

import json
import unicodedata
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samebits.audit.report.words import moment, quoted, share, told, visible

ANYTHING = st.text(st.characters(codec=None, categories=None))  # lone surrogates and controls, too


@given(ANYTHING)
@example("\x00\x1b\ud800\ufffe\u202e\u200b\r")
def test_any_text_can_be_written_and_holds_nothing_unseen(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    element = ET.Element("a", b=shown)
    element.text = shown
    assert ET.fromstring(ET.tostring(element)).text in (shown, None)
    unseen = {c for c in shown if unicodedata.category(c)[0] == "C"}
    assert unseen <= {"\n", "\t", "\u200d"}


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(ANYTHING, ANYTHING)
def test_a_token_is_on_one_line(text: str, other: str) -> None:
    assert "\n" not in quoted(text)
    assert (quoted(text) == quoted(other)) <= (visible(json.dumps(text)) == visible(json.dumps(other)))


def test_texts_that_differ_unseen_differ_when_shown() -> None:
    texts = ["a b", "a\u200bb", "a\u00adb", "ab", "a\rb", "a\x00b", "a\u202eb"]
    assert len({visible(text) for text in texts}) == len(texts)
    assert quoted(" a\n") == '" a\\n"'


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0%"), (1.0, "100%"), (0.99999, ">99.99%"), (1e-9, "<0.01%"), (0.5, "50%"), (0.1234, "12.34%")],
)
def test_a_share_is_not_rounded_to_all_or_nothing(value: float | None, text: str) -> None:
    assert share(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "1970-01-01 00:00:00 UTC"), (None, "not known"), (1e300, "1e+300 s after 1970"), (-1.0, "-1 s after 1970")],
)
def test_any_moment_can_be_said(seconds: float | None, text: str) -> None:
    assert moment(seconds) == text


def test_values_that_are_only_shown() -> None:
    assert told({"version": "1", "x": [1, None]}) == "version: 1, x: 1, not told"
    assert (told([]), told({}), told(None)) == ("none", "not told", "not told")
