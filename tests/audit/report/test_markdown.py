"""Markdown: what comes from outside stays text, and an answer can be copied out of it."""

from __future__ import annotations

import pytest
from documents import HOSTILE, TEXTS, document, hostile_text
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from samebits.audit.report.markdown import to_markdown
from samebits.audit.report.templates import fenced, markdown
from samebits.audit.report.words import visible

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@given(st.text())
def test_a_text_is_read_as_it_was(text: str) -> None:
    [paragraph] = [t for t in READER.parse(f"x {markdown(text)} x") if t.type == "inline"]
    assert {child.type for child in paragraph.children or ()} <= {"text", "text_special"}
    line = visible(text).translate({10: " ", 9: " "})
    assert "".join(child.content for child in paragraph.children or ()) == f"x {line} x"


@given(st.text())
def test_a_block_of_code_holds_the_text(text: str) -> None:
    [block, after] = [t for t in READER.parse(f"{fenced(text)}\n\nafter") if t.type in ("fence", "inline")]
    assert block.content == visible(text) + "\n"
    assert after.content == "after"


def test_nothing_breaks_out() -> None:
    tokens = READER.parse(to_markdown(document(hostile_text())))
    assert not [t for t in tokens if t.type == "html_block"]
    children = [child for t in tokens for child in t.children or ()]
    assert {child.type for child in children} <= {"text", "text_special", "strong_open", "strong_close", "softbreak"}
    headings = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    assert "b" not in headings
    control = READER.parse(f"a {HOSTILE}")
    assert {child.type for t in control for child in t.children or ()} & {"html_inline", "link_open"}


@pytest.mark.parametrize("name", ["flaky", "several"])
def test_everything_is_said(name: str) -> None:
    found = document(TEXTS[name]())
    tokens = READER.parse(to_markdown(found))
    headings = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    for target in found.targets:
        assert any(h.startswith(target.name) for h in headings)
    assert {"Method", "Environment", "How to repeat it", "What moved the answers"} <= set(headings)
    said = {child.content for t in tokens for child in t.children or ()}
    for target in found.targets:
        assert set(target.verdict) <= said
    tables = sum(t.type == "table_open" for t in tokens)
    assert tables >= 3 * len(found.targets)
    assert to_markdown(found) == to_markdown(document(TEXTS[name]()))
