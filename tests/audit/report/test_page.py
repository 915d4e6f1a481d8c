"""The page as text: it stands alone, holds everything, and nothing from outside is code in it."""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from documents import document, flaky_text, hostile_text, many_runs, raw_document, several_text

from samebits.audit.observation import Observation
from samebits.audit.report.document import parse_document
from samebits.audit.report.page import to_html
from samebits.errors import InputError

MOST_BYTES = 1_000_000


class Page(HTMLParser):
    """Tags with their attributes, headings, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.levels: list[int] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self.levels.append(int(tag[1]))

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture(params=["flaky", "several", "hostile"])
def page(request: pytest.FixtureRequest) -> Page:
    return Page(
        to_html(document({"flaky": flaky_text, "several": several_text, "hostile": hostile_text}[request.param]()))
    )


def test_it_loads_and_runs_nothing(page: Page) -> None:
    assert not {"script", "link", "iframe", "object", "embed", "img", "form", "base"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "srcset", "action")}, tag
        assert (attributes.get("href") or "#").startswith("#")
    policy = [
        a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_headings_are_in_order_and_ids_are_unique(page: Page) -> None:
    assert page.levels[0] == 1
    assert page.levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.levels, page.levels[1:], strict=False))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids)) > 5
    targets = {(a["href"] or "")[1:] for tag, a in page.tags if tag == "a"}
    assert targets <= set(ids)


def test_each_plot_has_words_and_a_table(page: Page) -> None:
    plots = [a for _, a in page.tags if a.get("role") == "img"]
    assert plots
    assert all((a.get("aria-label") or "").startswith("Plot. ") for a in plots)
    assert sum(tag == "details" and a.get("class") == "data" for tag, a in page.tags) == len(plots)
    assert sum(tag == "svg" for tag, _ in page.tags) == len(plots)


def test_nothing_from_outside_is_markup() -> None:
    text = to_html(document(hostile_text()))
    assert "<script" not in text
    assert "&lt;script&gt;" in text, "the control: the texts are in the page"
    assert "\u202e" not in text
    assert "\\u202e" in text
    text.encode("utf-8")


def test_everything_of_a_flaky_target_is_there() -> None:
    found = document(flaky_text())
    [target] = found.targets
    words = Page(to_html(found)).words
    for sentence in target.verdict:
        assert sentence in words
    parting = target.exhibits.partings[0]
    for side in parting.sides:
        assert side.token is not None
        assert repr(side.token.logprob) in words
        assert f"id {side.token.id}" in words
    for attribution in target.attributions:
        for factor in attribution.factors:
            assert f"{factor.name} {factor.status}" in words
            assert factor.exercise is None or factor.exercise.why in words
    assert "Below it: flaky" in words
    assert found.command in words
    for value in found.auditor.values():
        assert " ".join(value.split()) in words


def test_several_targets_are_compared_first() -> None:
    words = Page(to_html(document(several_text()))).words
    assert words.index("Side by side") < words.index("What was found")
    for state in ("not reproducible", "no difference seen", "texts repeat, bits do not"):
        assert state in words
    assert "Side by side" not in Page(to_html(document(flaky_text()))).words


def without_any_agreement() -> list[Observation]:
    """More prompts and runs than fit into a map, and hardly two cells side by side that are equal."""
    rng = random.Random(1)
    found = []
    for prompt, number in itertools.product(range(64), range(46)):
        tokens = (rng.choice("abcd"), *rng.choices(("one ", "two "), k=2))
        scores = tuple(-rng.random() for _ in tokens)
        o = Observation(target="t", prompt_id=f"prompt-{prompt}", run=number, text="".join(tokens), tokens=tokens)
        found.append(replace(o, logprobs=scores))
    return found


def test_the_page_stays_small() -> None:
    assert len(to_html(parse_document(raw_document([many_runs(4000)]))).encode()) < MOST_BYTES
    page = to_html(parse_document(raw_document([without_any_agreement()])))
    assert 250_000 < len(page.encode()) < MOST_BYTES
    assert "60 prompts that departed most are shown, of 64" in page
    assert len(to_html(document(several_text())).encode()) < MOST_BYTES


def test_equal_documents_give_equal_pages() -> None:
    assert to_html(document(flaky_text())) == to_html(document(flaky_text()))
    assert to_html(document(flaky_text())) != to_html(document(several_text()))


def test_without_the_package_for_plots_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(InputError, match=r"samebits\[report\]"):
        to_html(document(flaky_text()))
