"""The plot of prompts × runs: which answer each run got."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from samebits.audit.exhibits import ABSENT, ORDER, place_of
from samebits.audit.report.charts import WIDE, Chart, axis, frame
from samebits.audit.report.document import TargetDocument
from samebits.audit.report.draw import INK
from samebits.audit.report.words import number, visible
from samebits.audit.views import FAILED
from samebits.counted import counted, part

CLASSES: Final = ("A", "B", "C", "D and others", "failed")
COLOURS: Final = ("var(--class-a)", "var(--class-b)", "var(--class-c)", "var(--class-d)", "var(--failed)")
# Vega measures with another font than a reader may have, so labels are cut by characters.
SHORT: Final = "length(datum.label) > 16 ? slice(datum.label, 0, 15) + '…' : datum.label"
PADDING: Final = {"left": 28, "right": 4, "top": 4, "bottom": 4}
MOST_PROMPTS: Final = 60
# Of a row, and of the map: a cell costs about 120 bytes of the page.
MOST_CELLS, ALL_CELLS = 120, 3000
LETTER_CELLS, MOST_LETTERS = 72, 800  # up to here a letter fits into a cell, and into the page


def heat_map(target: TargetDocument) -> Chart:
    """Which answer each run of each prompt got."""
    runs = target.exhibits.runs
    ranked = sorted(runs.rows.items(), key=lambda item: (-sum(c not in (0, ABSENT) for c in item[1]), item[0]))
    shown = dict(ranked[:MOST_PROMPTS])
    step = max(1, -(-len(runs.columns) // min(MOST_CELLS, ALL_CELLS // len(shown))))
    columns = _columns(target)
    cells = {name: _cells([row[c] for c in columns], step) for name, row in shown.items()}
    width = len(next(iter(cells.values())))
    departing = sum(code not in (0, ABSENT) for row in cells.values() for code in row)
    letters = step == 1 and width <= LETTER_CELLS and departing <= MOST_LETTERS
    segments = [segment for name, row in cells.items() for segment in _segments(visible(name), row, letters)]
    present = [i for i, name in enumerate(CLASSES) if any(s["class"] == name for s in segments)]
    y = {
        "field": "prompt",
        "type": "nominal",
        "sort": list(map(visible, shown)),
        "axis": {"title": None, "domain": False, "ticks": False, "labelExpr": SHORT, "labelLimit": 0},
    }
    x = {"field": "from", "type": "quantitative", "scale": {"domain": [0, width], "nice": False}}
    hidden = {**x, "axis": axis(_columns_title(target, step), labels=False, ticks=False, domain=False)}
    colour = {
        "field": "class",
        "type": "nominal",
        "scale": {"domain": [CLASSES[i] for i in present], "range": [COLOURS[i] for i in present]},
        "legend": {"symbolType": "square", "symbolSize": 140},
    }
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rect", "stroke": "var(--surface)", "strokeWidth": 1.5},
            "encoding": {"y": y, "x": hidden, "x2": {"field": "to"}, "color": colour},
        }
    ]
    if letters:
        layers.append(
            {
                "transform": [{"filter": "datum.letter != ''"}],
                "mark": {"type": "text", "fontSize": 10, "fontWeight": 700, "color": "var(--on-class)"},
                "encoding": {"y": y, "x": {**hidden, "field": "middle"}, "text": {"field": "letter"}},
            }
        )
    groups = _groups(target, step, width)
    if groups:
        layers += [
            {
                "data": {"values": groups[1:]},
                "mark": {"type": "rule", "color": INK, "strokeWidth": 1},
                "encoding": {"x": {**hidden, "field": "from"}},
            },
            {
                "data": {"values": groups},
                "mark": {"type": "text", "align": "left", "dx": 3, "baseline": "bottom", "y": -4},
                "encoding": {"x": {**hidden, "field": "from"}, "text": {"field": "label"}},
            },
        ]
    spec = frame(
        layers,
        segments,
        padding=PADDING,
        width=WIDE,
        height=90 + 17 * len(shown),
    )
    return Chart(
        "runs", "Which answer each run got", _heat_map_says(target, step), spec, *_heat_map_table(ranked), True
    )


def _cells(row: Sequence[int], step: int) -> list[int]:
    """The rarest of the classes in each cell: a failure, else the least common answer."""
    parts = [row[start : start + step] for start in range(0, len(row), step)]
    return [FAILED if FAILED in part else max(part) for part in parts]


def _segments(name: str, cells: Sequence[int], letters: bool) -> list[dict[str, Any]]:
    """Equal cells side by side as one, so that what is common costs nothing; cells with a letter stay apart."""

    def key(item: tuple[int, int]) -> tuple[int, int]:
        place, code = item
        shown = code if code < 0 else min(code, 3)
        return shown, place if letters and code != 0 else 0

    found = []
    for (code, _), group in itertools.groupby(enumerate(cells), key=key):
        places = [place for place, _ in group]
        if code == ABSENT:
            continue  # the prompt has no such run
        found.append(
            {
                "prompt": name,
                "from": places[0],
                "to": places[-1] + 1,
                "middle": (places[0] + places[-1] + 1) / 2,
                "class": CLASSES[code],  # the last one is FAILED
                "letter": "" if code == 0 else "×" if code == FAILED else "ABCD"[code],
            }
        )
    return found


def _order(target: TargetDocument) -> list[str]:
    """The factors that vary: first those that move the text, then as they stand in ORDER."""
    levels: dict[str, set[str]] = {}
    for condition in target.exhibits.runs.conditions:
        for name, level in condition:
            levels.setdefault(name, set()).add(level)
    causes = {cause for a in target.attributions if a.view == "text" for cause in a.causes}
    names = [*ORDER, *sorted(levels.keys() - set(ORDER))]
    return sorted((name for name in names if len(levels.get(name, ())) > 1), key=lambda name: name not in causes)


def _columns(target: TargetDocument) -> list[int]:
    """The columns of the map in that order."""
    runs, order = target.exhibits.runs, _order(target)

    def place(column: int) -> tuple[Any, ...]:
        index, run = runs.columns[column]
        return (*place_of(runs.conditions[index], order), run)

    return sorted(range(len(runs.columns)), key=place)


def _groups(target: TargetDocument, step: int, width: int) -> list[dict[str, Any]]:
    """Where the level of the first varied factor changes."""
    runs, varied = target.exhibits.runs, _order(target)
    if not varied:
        return []
    found: list[dict[str, Any]] = []
    for place, column in enumerate(_columns(target)):
        level = dict(runs.conditions[runs.columns[column][0]]).get(varied[0], "not set")
        label = f"{varied[0]} {level}"
        if not found or found[-1]["label"] != label:
            found.append({"from": min(place / step, width), "label": label})
    return found if len(found) <= 8 else []


def _columns_title(target: TargetDocument, step: int) -> str:
    varied = ", ".join(_order(target))
    each = "a run" if step == 1 else f"{step} runs"
    return f"a cell is {each}; ordered by {varied}, then run" if varied else f"a cell is {each}, in order"


def _heat_map_says(target: TargetDocument, step: int) -> str:
    runs = target.exhibits.runs
    differing = sum(any(c > 0 for c in row) for row in runs.rows.values())
    failed = sum(c == FAILED for row in runs.rows.values() for c in row)
    says = (
        "A is a prompt's most common text, B the next. A letter says nothing across prompts. "
        f"{part(differing, len(runs.rows), 'prompt', 'has', 'have')} more than one; "
        f"{counted(failed, 'run')} failed."
    )
    if step > 1:
        says += f" A cell holds {step} runs and shows the rarest of them, so that none is hidden."
    if len(runs.rows) > MOST_PROMPTS:
        says += f" The {MOST_PROMPTS} prompts that departed most are shown, of {len(runs.rows)}."
    return says


def _heat_map_table(
    ranked: Sequence[tuple[str, Sequence[int]]],
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    rows = []
    for name, row in ranked[:MOST_PROMPTS]:
        counts = Counter(row)
        others = sum(n for code, n in counts.items() if code > 2)
        rows.append((visible(name), *(number(counts[c]) for c in (0, 1, 2)), number(others), number(counts[FAILED])))
    return ("prompt", *CLASSES), tuple(rows)
