"""Vega-Lite specifications to SVG that stands in the page, in its colours: light, dark or printed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from samebits.errors import InputError

# Colours are names of CSS variables, which report.css gives a value for each scheme.
INK: Final = "var(--ink-2)"
LINE: Final = "var(--line)"
MARK: Final = "var(--mark)"
SECOND: Final = "var(--mark-2)"
CONFIG: Final[Mapping[str, Any]] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "domainColor": INK,
        "tickColor": LINE,
        "gridColor": LINE,
        "labelLimit": 120,
    },
    "legend": {
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 200,
        "title": None,
        "orient": "bottom",
        "symbolStrokeWidth": 2,
        "columnPadding": 28,
    },
    "text": {"color": INK, "fontSize": 12},
}
_TAG: Final = re.compile(r"<[^>]+>")  # texts of the plot hold no angle brackets: they are escaped
_SIZE: Final = re.compile(r'(<svg [^>]*?) width="[\d.]+" height="[\d.]+"')
_ARIA: Final = re.compile(r' (?:aria-[a-z]+|role)="[^"]*"')
_ID: Final = re.compile(r'(\bid="|url\(#)')
SCHEMA: Final = "https://vega.github.io/schema/vega-lite/v6.json"


def check_drawing(otherwise: str = "write --markdown") -> None:
    """Whether plots can be drawn here.

    Args:
        otherwise: what can be done without them, for the message.

    Raises:
        InputError: the package is missing.
    """
    try:
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise InputError(
            "plots need the package vl-convert-python",
            field="html",
            remedy=f"pip install 'samebits[report]', or {otherwise}.",
        ) from error


def draw(spec: Mapping[str, Any], name: str) -> Markup:
    """A plot as an SVG element as wide as its place. All texts of the specification are escaped by Vega.

    Args:
        spec: Vega-Lite, with its data; nothing is loaded from elsewhere.
        name: not used by another plot of the page; ids begin with it.

    Raises:
        InputError: the package is missing.
    """
    check_drawing()
    import vl_convert

    whole = {"$schema": SCHEMA, "config": CONFIG, "padding": 4, **spec}
    svg: str = vl_convert.vegalite_to_svg(whole, vl_version="6.4", allowed_base_urls=[])
    # The figure around it is what assistive software reads.
    svg = _TAG.sub(lambda tag: _ID.sub(rf"\g<1>{name}-", _ARIA.sub("", tag.group())), svg)
    return Markup(_SIZE.sub(r'\1 aria-hidden="true" focusable="false"', svg, count=1))
