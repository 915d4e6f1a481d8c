"""The plots of a report as Vega-Lite specifications, each with the same in words and as a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from samebits.audit.divergence import Divergence
from samebits.audit.report.document import TargetDocument
from samebits.audit.report.draw import MARK, SECOND
from samebits.audit.report.words import interval, number, share, visible
from samebits.counted import counted, part, verb

WIDTH, WIDE, HEIGHT = 400, 840, 240
MOST_POINTS: Final = 256
MOST_ROWS: Final = 40  # of a table


@dataclass(frozen=True)
class Chart:
    """A plot.

    Attributes:
        key: for ids; the same for every target.
        title: what is shown.
        says: the same in words, for everybody, and for those who do not see the plot.
        spec: Vega-Lite; None where there is nothing to plot, and `says` tells why.
        columns, rows: the table.
        wide: whether it needs the width of the page.
    """

    key: str
    title: str
    says: str
    spec: Mapping[str, Any] | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    wide: bool = False


def axis(title: str, **others: Any) -> dict[str, Any]:
    """An axis without grid lines."""
    return {"title": title, "grid": False, **others}


def frame(layer: Sequence[Mapping[str, Any]], values: Sequence[Mapping[str, Any]], **others: Any) -> dict[str, Any]:
    """Layers over the same data, at the size of a plot in a column."""
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": list(values)},
        "layer": list(layer),
        **others,
    }


# ---- survival --------------------------------------------------------------------------------------------------------


def survival(target: TargetDocument) -> Chart:
    """Share of pairs of runs that still agree, by place."""
    title = "How long answers agree"
    found = target.metrics.divergence
    parting = {name: d for name, d in found.items() if d.places}
    if not parting:
        return Chart("survival", title, "No two answers to one prompt parted anywhere, so there is no curve.")
    unit = Counter(d.unit for d in parting.values()).most_common(1)[0][0]
    same = {name: d for name, d in found.items() if d.unit == unit}
    others = len(found) - len(same)
    lengths = _thin(sorted({place + 1 for d in same.values() for place in d.places}))
    worst = min(same, key=lambda name: same[name].survival(lengths[-1]))
    last = lengths[-1]
    values = [
        {"length": length, "share": curve(length), "which": which}
        for which, curve in (
            ("mean of all prompts", lambda n: _mean_survival(same, n)),
            (f"lowest: {visible(worst)}", same[worst].survival),
        )
        for length in (0, *lengths, last + max(1, last // 12))
    ]
    noun = "tokens" if unit != "characters" else "characters"
    left = (
        f" {counted(others, 'prompt')} {verb(others, 'is', 'are')} left out, counted in other units." if others else ""
    )
    says = (
        f"Of all pairs of runs of a prompt, {share(_mean_survival(same, last))} agree to the end, on average over "
        f"{counted(len(same), 'prompt')}; of prompt {visible(worst)} {share(same[worst].survival(last))}. The first "
        f"two answers part after {lengths[0] - 1} common {noun}, the last after {last - 1}.{left}"
    )
    step = max(1, len(lengths) // 12)
    rows = tuple(
        (number(n), share(_mean_survival(same, n)), share(same[worst].survival(n)))
        for n in sorted({*lengths[::step], last})
    )
    columns = (f"first {noun}", "agree, mean", "agree, lowest prompt")
    return Chart("survival", title, says, _survival_plot(values, noun), columns, rows)


def _survival_plot(values: Sequence[Mapping[str, Any]], noun: str) -> dict[str, Any]:
    encoding = {
        "x": {
            "field": "length",
            "type": "quantitative",
            "axis": axis(f"{noun} from the start", tickMinStep=1),
            "scale": {"nice": False},
        },
        "y": {
            "field": "share",
            "type": "quantitative",
            "scale": {"domain": [0, 1]},
            "axis": {"title": "pairs that agree so far", "format": "%"},
        },
        "color": {"field": "which", "type": "nominal", "scale": {"range": [MARK, SECOND]}, "sort": None},
        "strokeDash": {"field": "which", "type": "nominal", "sort": None, "scale": {"range": [[1, 0], [6, 3]]}},
    }
    mark = {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5}
    return frame([{"mark": mark, "encoding": encoding}], values)


def _mean_survival(found: Mapping[str, Divergence], length: int) -> float:
    return sum(d.survival(length) for d in found.values()) / len(found)


def _thin(places: list[int]) -> list[int]:
    """At most MOST_POINTS of them; the first and the last stay."""
    step = -(-len(places) // MOST_POINTS)
    return sorted({places[0], *places[::step], places[-1]})


# ---- unique completions ----------------------------------------------------------------------------------------------


def unique(target: TargetDocument) -> Chart:
    """Different texts of a prompt, by requests in flight."""
    title = "Different answers by concurrency"
    levels = target.exhibits.unique_by_concurrency
    if not levels:
        return Chart("unique", title, "The concurrency was not set, so nothing can be said about it.")
    said = "; ".join(
        f"{x.mean:.2f} with {x.level} in flight (at most {x.most}, of {counted(x.runs, 'run')})" for x in levels
    )
    says = f"Different texts of one prompt, on average over prompts: {said}. 1 means that all runs are equal."
    values = [{"level": x.level, "mean": x.mean, "most": x.most, "text": f"{x.mean:.2f}"} for x in levels]
    x = {
        "field": "level",
        "type": "ordinal",
        "sort": None,
        "axis": axis("requests in flight", labelAngle=0, ticks=False),
        "scale": {"paddingInner": 0.4, "paddingOuter": 0.3},
    }
    most = max(x.most for x in levels)
    ticks = {"values": list(range(most + 1))} if most <= 10 else {}
    y = {"type": "quantitative", "axis": {"title": "different texts a prompt", "format": "d", **ticks}}
    spec = frame(
        [
            {"mark": {"type": "bar", "color": MARK}, "encoding": {"x": x, "y": {"field": "mean", **y}}},
            {
                "mark": {"type": "tick", "color": SECOND, "thickness": 3, "size": 44, "opacity": 1},
                "encoding": {"x": x, "y": {"field": "most", **y}},
            },
            {
                "mark": {"type": "text", "dy": 14, "fontSize": 13, "fontWeight": 600, "color": "var(--on-mark)"},
                "encoding": {"x": x, "y": {"field": "mean", **y}, "text": {"field": "text"}},
            },
        ],
        values,
    )
    rows = tuple((x.level, number(x.runs), f"{x.mean:.2f}", str(x.most)) for x in levels)
    columns = ("in flight", "runs a prompt", "different texts, mean (bar)", "most of a prompt (line)")
    return Chart("unique", title, says, spec, columns, rows)


# ---- log-probabilities -----------------------------------------------------------------------------------------------


def spread(target: TargetDocument) -> Chart:
    """Largest spread of a token's log-probability, by place."""
    title = "Spread of log-probabilities"
    scores = target.metrics.scores
    if not scores:
        return Chart("spread", title, "The target offers no log-probabilities that could be compared.")
    longest = max(len(s.spread) for s in scores.values())
    at = [[s.spread[t] for s in scores.values() if t < len(s.spread)] for t in range(longest)]
    largest = [max((x for x in spreads if math.isfinite(x)), default=0.0) for spreads in at]
    infinite = sum(not math.isfinite(x) for spreads in at for x in spreads)
    width = max(1, -(-longest // MOST_POINTS))
    tops = [(start, max(largest[start : start + width])) for start in range(0, longest, width)]
    values = [{"place": start, "spread": top} for start, top in tops if top > 0]
    equal = sum(s.variants == 1 for s in scores.values())
    unlike = f" {infinite} differences are infinite or no numbers; they have no mark." if infinite else ""
    if not values:
        runs = sum(s.runs for s in scores.values())
        asked = f"{counted(runs, 'run')} of {counted(len(scores), 'prompt')}"
        says = f"No token with equal context got two log-probabilities, in {asked}."
        if equal < len(scores) and not infinite:
            says += f" In {len(scores) - equal} of these prompts bits differ all the same: after other tokens, or in "
            says += "the sign of a zero."
        return Chart("spread", title, unlike.strip() or says)
    zero = sum(x == 0 for x in largest)
    says = (
        "Among runs with the same tokens so far, one token's log-probability differs by up to "
        f"{number(max(largest), 3)} nats. {part(equal, len(scores), 'prompt', 'has', 'have')} equal bits in all runs; "
        f"at {part(zero, longest, 'place')} no prompt shows a difference, and there is no mark.{unlike}"
        + (f" A mark stands for {width} places, by the largest." if width > 1 else "")
    )
    ranked = sorted(scores.items(), key=lambda item: -item[1].largest)
    rows = tuple(
        (
            visible(name),
            number(s.runs),
            number(s.variants),
            number(s.largest, 3),
            number(s.mean_difference, 3),
            number(sum(s.kl) / len(s.kl) if s.kl else None, 3),
        )
        for name, s in ranked[:MOST_ROWS]
    )
    columns = ("prompt", "runs", "different, by bits", "largest spread, nats", "mean difference", "mean KL, at least")
    return Chart("spread", title, says + _cut(ranked), _spread_plot(values, longest), columns, rows, wide=True)


def _spread_plot(values: Sequence[Mapping[str, Any]], longest: int) -> dict[str, Any]:
    spreads = [v["spread"] for v in values]
    low, high = math.floor(math.log10(min(spreads))), math.ceil(math.log10(max(spreads)))
    powers = [10.0**n for n in range(low, max(high, low + 1) + 1)]
    encoding = {
        "x": {
            "field": "place",
            "type": "quantitative",
            "axis": axis("token, from 0", tickMinStep=1),
            "scale": {"domain": [0, longest], "nice": False},
        },
        "y": {
            "field": "spread",
            "type": "quantitative",
            "scale": {"type": "log", "domain": [powers[0], powers[-1]]},
            "axis": {"title": "largest difference, nats", "format": ".0e", "values": powers},
        },
    }
    mark = {"type": "point", "filled": True, "size": 42, "color": MARK, "opacity": 1}
    return frame([{"mark": mark, "encoding": encoding}], values, width=WIDE)


def _cut(rows: Sequence[Any]) -> str:
    return f" The table has the first {part(MOST_ROWS, len(rows), 'prompt')}." if len(rows) > MOST_ROWS else ""


# ---- several targets -------------------------------------------------------------------------------------------------


def comparison(targets: Sequence[TargetDocument]) -> Chart:
    """Exact-repeat rates side by side, with their intervals."""
    values: list[dict[str, Any]] = []
    for t in targets:
        repeat = t.metrics.view("text").repeat
        if repeat.value is not None:
            low, high = (repeat.interval.low, repeat.interval.high) if repeat.interval else (None, None)
            values.append({"name": visible(t.name), "rate": repeat.value, "low": low, "high": high})
    said = "; ".join(f"{v['name']} {share(v['rate'])}" for v in values)
    y = {"field": "name", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 150, "domain": False}}
    x = {"type": "quantitative", "axis": {"title": "exact-repeat rate of texts", "format": "~%", "tickCount": 5}}
    spec = frame(
        [
            {
                "mark": {"type": "rule", "strokeWidth": 3, "color": MARK, "strokeCap": "round"},
                "encoding": {"y": y, "x": {"field": "low", **x}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 110, "color": MARK, "opacity": 1},
                "encoding": {"y": y, "x": {"field": "rate", **x, "scale": {"zero": False}}},
            },
        ],
        values,
        height=70 + 34 * len(values),
    )
    rows = tuple(
        (visible(t.name), share(t.repeat_rate), interval(t.metrics.view("text").repeat.interval)) for t in targets
    )
    says = f"Exact-repeat rate, the mean over prompts of the share of pairs of runs with equal texts: {said}."
    return Chart(
        "comparison", "Exact-repeat rates", says, spec if values else None, ("target", "rate", "interval"), rows
    )
