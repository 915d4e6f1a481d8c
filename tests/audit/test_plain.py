"""Results as JSON's types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from samebits.audit.plain import plain


@dataclass(frozen=True)
class _Thing:
    name: str
    values: tuple[float, ...]
    by: dict[int, Any]
    measure: Callable[[], int] = len  # type: ignore[assignment]


def test_nested_values_become_json() -> None:
    thing = _Thing("a", (1.5, math.inf), {3: _Thing("b", (), {})})
    document = plain(thing)
    assert document == {
        "name": "a",
        "values": [1.5, "inf"],
        "by": {"3": {"name": "b", "values": [], "by": {}}},
    }
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "x"])
def test_what_json_has_stays(value: object) -> None:
    assert plain(value) is value


def test_arrays_become_lists_of_any_length() -> None:
    found = plain({"spread": np.array([0.5, np.inf]), "many": np.zeros(5000)})
    assert found == {"spread": [0.5, "inf"], "many": [0.0] * 5000}
    json.dumps(found, allow_nan=False)
