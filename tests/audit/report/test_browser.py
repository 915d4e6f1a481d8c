"""The page in a real browser: it is quiet, fits a phone, is legible in both schemes, accessible, and can be printed.

Chromium comes from the system; where it is missing these tests are skipped, and fail in CI.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from documents import TEXTS, document
from playwright.sync_api import Browser, Page, sync_playwright

from samebits.audit.report.page import to_html
from waiting import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
PHONE, DESKTOP = 360, 1200
Scheme = Literal["light", "dark"]
# Contrast of every text of a plot with what is behind it: the bar or cell of the labels on marks, else the figure.
CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => rgb.map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const texts = [...document.querySelectorAll("figure svg text")];
  return texts.filter((t) => t.getBoundingClientRect().width > 0).map((t) => {
    const box = t.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const marks = [...t.closest("svg").querySelectorAll("[class*=mark-rect] path")].filter((m) => {
      const b = m.getBoundingClientRect();
      return b.left <= x && x <= b.right && b.top <= y && y <= b.bottom;
    });
    const behind = marks.length ? getComputedStyle(marks.at(-1)).fill
      : getComputedStyle(t.closest("figure")).backgroundColor;
    return [t.textContent, ratio(parse(getComputedStyle(t).fill), parse(behind))];
  });
}"""


def chromium() -> str:
    """The browser; skips the test without one, and fails it in CI."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium here, and CI must have one: apt-get install chromium")
        pytest.skip("no Chromium here: apt-get install chromium")
    return found


def test_without_a_browser_ci_fails_and_others_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have one"):
        chromium()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no Chromium here"):
        chromium()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        # Neither its sandbox nor /dev/shm works in most containers. It opens our own files.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=path, args=options, timeout=1000 * PATIENCE_S)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    for name, text in TEXTS.items():
        (folder / f"{name}.html").write_text(to_html(document(text())), "utf-8")
    return {name: folder / f"{name}.html" for name in TEXTS}


@dataclass
class Opened:
    """A page, and what happened since it was asked for."""

    page: Page
    said: list[str]
    requests: list[str]

    @property
    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return found


@pytest.fixture
def opened(browser: Browser) -> Iterator[Any]:
    contexts = []

    def open_page(path: Path, *, width: int = DESKTOP, scheme: Scheme = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE_S)
        found = Opened(context.new_page(), [], [])
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("dialog", lambda dialog: (found.said.append(dialog.message), dialog.dismiss()))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(path.as_uri())
        return found

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", TEXTS)
def test_it_is_quiet_and_asks_for_nothing(opened: Any, files: dict[str, Path], name: str) -> None:
    found = opened(files[name])
    assert found.said == []
    assert found.requests == [files[name].as_uri()]
    assert found.page.locator("script").count() == 0


def test_negative_control_noise_and_requests_are_seen(opened: Any, tmp_path: Path) -> None:
    path = tmp_path / "noisy.html"
    path.write_text("<img src='other.png'><script>console.error('x'); throw new Error('y')</script>")
    found = opened(path)
    while len(found.said) < 2 or len(found.requests) < 2:  # they are told of in their own time
        found.page.wait_for_timeout(10)
    assert len(found.requests) == 2


@pytest.mark.parametrize("name", TEXTS)
def test_it_fits_a_phone(opened: Any, files: dict[str, Path], name: str) -> None:
    found = opened(files[name], width=PHONE)
    assert found.overflow == 0
    # With everything unfolded, too.
    found.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert found.overflow == 0
    found.page.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<div style=width:999px>x</div>')"
    )
    assert found.overflow > 0, "the control: a wide element is seen"


@pytest.mark.parametrize(("name", "scheme"), [("flaky", "light"), ("several", "dark"), ("hostile", "light")])
def test_it_is_accessible(opened: Any, files: dict[str, Path], name: str, scheme: Scheme) -> None:
    found = opened(files[name], scheme=scheme)
    found.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    violations = Axe().run(found.page).response["violations"]
    assert [(v["id"], [n["target"] for n in v["nodes"][:3]]) for v in violations] == []


def test_negative_control_what_is_not_accessible_is_seen(opened: Any, files: dict[str, Path]) -> None:
    found = opened(files["flaky"])
    found.page.add_style_tag(content=":root { --ink-2: #ddd; }")
    found.page.evaluate("document.querySelector('[role=img]').removeAttribute('aria-label')")
    seen = {v["id"] for v in Axe().run(found.page).response["violations"]}
    assert {"color-contrast", "role-img-alt"} <= seen


def luminance(found: Opened) -> float:
    """Of the page's background, 0 to 255."""
    text: str = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = (int(x) for x in text.removeprefix("rgb(").rstrip(")").split(","))
    return (red + green + blue) / 3


def test_the_scheme_of_the_reader_is_followed_and_paper_is_white(opened: Any, files: dict[str, Path]) -> None:
    light, dark = opened(files["flaky"]), opened(files["flaky"], scheme="dark")
    assert luminance(light) > 230
    assert luminance(dark) < 40
    dark.page.emulate_media(media="print")
    assert luminance(dark) == 255


@pytest.mark.parametrize(("name", "scheme"), [("flaky", "light"), ("several", "dark"), ("flaky", "dark")])
def test_plots_are_legible(opened: Any, files: dict[str, Path], name: str, scheme: Scheme) -> None:
    found = opened(files[name], scheme=scheme)
    texts = found.page.evaluate(CONTRAST)
    assert len(texts) > 20
    assert {"B", "1"} <= {text for text, _ in texts}
    assert [(text, ratio) for text, ratio in texts if ratio < 4.5] == []
    found.page.add_style_tag(content=":root { --ink-2: var(--surface) !important; }")
    assert min(ratio for _, ratio in found.page.evaluate(CONTRAST)) == 1, "the control: what cannot be read is seen"


def test_it_is_printed_in_full(opened: Any, files: dict[str, Path]) -> None:
    found = opened(files["several"])
    data = found.page.pdf(prefer_css_page_size=True, print_background=True)
    assert data.startswith(b"%PDF")
    pages = data.count(b"/Type /Page\n") or data.count(b"/Type /Page ")
    assert 4 <= pages <= 40
    width = 794  # A4 at 96 dots an inch; margins make it narrower still
    narrow = opened(files["several"], width=width - 2 * 53)
    narrow.page.emulate_media(media="print")
    assert narrow.overflow == 0
    wide = narrow.page.evaluate(
        "[...document.querySelectorAll('.scroll, .plot')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert wide == 0, "nothing is cut off at the margin"


def test_all_sections_are_there(opened: Any, files: dict[str, Path]) -> None:
    found = opened(files["flaky"])
    headings = found.page.locator("h1, h2, h3").all_inner_texts()
    assert headings[0] == "How reproducible is flaky?"
    assert headings[1] == "Verdict"
    for wanted in ("Where answers part first", "Plots", "What moved the answers", "Seeds", "Failures", "The target",
                   "Method", "Definitions", "Environment", "How to repeat it"):  # fmt: skip
        assert wanted in headings
    assert found.page.locator("figure svg").count() == 4
    assert found.page.locator(".side").count() >= 2
    found.page.locator("summary", has_text="The same as a table").first.click()
    assert found.page.locator("figure table").first.is_visible()
    found.page.get_by_role("link", name="Definitions").first.click()
    assert found.page.evaluate("document.querySelector('#definitions').getBoundingClientRect().top") < 700
