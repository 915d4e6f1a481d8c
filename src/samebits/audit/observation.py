"""One answer of a target, with all that is known about how it came about; the line format of a journal.

A line is one JSON object in ASCII that gives back the same observation exactly: floats with the digits that tell them
apart (-0.0 stays -0.0), what JSON has no number for as the texts "NaN", "Infinity", "-Infinity", lone surrogates
escaped. It is not the canonical JSON of `samebits.numerics`, which has no -0.0 and turns long integers into texts.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from samebits.audit.ranges import MOST
from samebits.errors import InputError

# (factor, level) pairs, sorted by factor.
Condition = tuple[tuple[str, str], ...]
# Factors that an experiment sets, and what their levels mean. Others may be added; the analysis treats all alike.
FACTORS: Mapping[str, str] = {
    "concurrency": "requests of the plan in flight at once: 1, 8, 32 …",
    "load": "random other requests in the background: off, on",
    "prefix": "prefix cache of the target: cold, warm",
    "streaming": "answer in one piece or as events: off, on",
    "order": "which permutation of the prompts: 0, 1 …",
    "time": "which block of the experiment, earliest first: 0, 1 …",
    "seed": "whether a seed is sent: fixed, the same each time; none, which must vary at a temperature above 0",
}

_LARGEST = sys.float_info.max
_NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_REMEDY = "The file is no journal of samebits audit, or is damaged or of a newer version."


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What shows that a condition was really met; None is not known.

    Attributes:
        in_flight: most requests of the plan in flight while this one was, itself included.
        background: most background requests in flight while this one was.
        prompt_tokens, cached_tokens, completion_tokens: as the target counts them.
        prefill_chunks: pieces in which the target computed the prompt.
        stream_events: events with content that came in.
        seed_sent: the seed in the request.
        seed_echoed: the seed that the target says it used.
    """

    in_flight: int | None = None
    background: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    prefill_chunks: int | None = None
    stream_events: int | None = None
    seed_sent: int | None = None
    seed_echoed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When an answer came.

    Attributes:
        started: seconds since 1970.
        total_s: seconds from then to the end.
        first_token_s: seconds from then to the first piece; None unless streamed.
    """

    started: float
    total_s: float
    first_token_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One request and what came of it.

    Attributes:
        target: name of the target.
        prompt_id: which prompt.
        run: counts the requests with the same target, prompt and condition, from 0.
        condition: see FACTORS and `as_condition`.
        text: the answer; None exactly when the request failed.
        token_ids: ids of the answer.
        tokens: texts of the tokens of the answer, for targets that tell these and no ids, or both.
        logprobs: log-probability of each token of the answer.
        top_logprobs: for each token the (token, log-probability) pairs offered, best first.
        finish_reason: as the target says.
        answer: label that was read out of the text; None where none could be.
        correct: whether that is the expected answer; None where nothing is expected.
        parsed: canonical JSON (`samebits.numerics.canonical_json`) of what the text holds; None where it holds none.
        body: digest of the canonical JSON of the whole response without its volatile fields.
        fingerprint: ``system_fingerprint``.
        error: why it failed, in words that stay the same for the same failure; None exactly when it did not.
        attempts: requests sent until this came of it, retries included.

    Raises:
        InputError: condition not sorted, numbers below 0, neither or both of text and error, or lists that tell of the
            same tokens and differ in length.
    """

    target: str
    prompt_id: str
    run: int
    condition: Condition = ()
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    tokens: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[tuple[tuple[str, float], ...], ...] | None = None
    finish_reason: str | None = None
    answer: str | None = None
    correct: bool | None = None
    parsed: str | None = None
    body: str | None = None
    fingerprint: str | None = None
    error: str | None = None
    attempts: int = 1
    evidence: Evidence = field(default_factory=Evidence)
    timing: Timing | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.error is None):
            raise _refusal("text", "exactly one of text and error must be given")
        names = [name for name, _ in self.condition]
        if names != sorted(set(names)):
            raise _refusal("condition", "factors are not sorted, or one is there twice")
        if self.run < 0 or self.attempts < 1:
            raise _refusal("run", f"run {self.run} or attempts {self.attempts} is out of range")
        lengths = {
            name: len(values)
            for name in ("token_ids", "tokens", "logprobs", "top_logprobs")
            if (values := getattr(self, name)) is not None
        }
        if len(set(lengths.values())) > 1:
            raise _refusal("token_ids", f"lists of different lengths: {lengths}")

    def level(self, factor: str) -> str | None:
        """The level of a factor; None where the factor was not set."""
        return next((level for name, level in self.condition if name == factor), None)

    @property
    def failed(self) -> bool:
        """Whether there is no answer."""
        return self.error is not None


def as_condition(levels: Mapping[str, str]) -> Condition:
    """Factor → level, as `Observation.condition` holds it."""
    return tuple(sorted(levels.items()))


def level_order(level: str) -> tuple[int, float, str]:
    """A key that sorts levels: numbers by value, before words by letters (off and cold before on and warm)."""
    return (0, float(level), level) if level.isdecimal() else (1, 0.0, level)


def to_line(observation: Observation) -> str:
    """The observation as one line of ASCII, newline included; fields that are None are left out."""
    out: dict[str, Any] = {}
    for name, value in vars(observation).items():
        if value is None:
            continue
        if name == "condition":
            out[name] = dict(value)
        elif name == "logprobs":
            out[name] = value if all(map(math.isfinite, value)) else [_pack(x) for x in value]
        elif name == "top_logprobs":
            finite = all(math.isfinite(x) for position in value for _, x in position)
            out[name] = value if finite else [[[token, _pack(x)] for token, x in position] for position in value]
        elif name in ("evidence", "timing"):
            out[name] = {key: x for key, x in vars(value).items() if x is not None}
        else:
            out[name] = value
    return json.dumps(out, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def from_line(line: str) -> Observation:
    """The observation that `to_line` wrote.

    Raises:
        InputError: the line is not JSON, a field is missing, unknown or of the wrong type.
    """
    try:
        raw = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _refusal("line", f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise _refusal("line", "not a JSON object")
    return Observation(**_fields("", raw, _READERS, required=("target", "prompt_id", "run")))


def _refusal(name: str, message: str) -> InputError:
    return InputError(message, field=name, remedy=_REMEDY)


def _pack(value: float) -> float | str:
    return value if math.isfinite(value) else next(k for k, x in _NOT_NUMBERS.items() if str(x) == str(value))


# ---- readers, one for each type; each refuses everything else --------------------------------------------------------

_Reader = Callable[[str, Any], Any]


def _fields(
    prefix: str, raw: Mapping[str, Any], readers: Mapping[str, _Reader], *, required: tuple[str, ...] = ()
) -> dict[str, Any]:
    for name in raw:
        if name not in readers:
            raise _refusal(prefix + name, "is unknown")
    for name in required:
        if name not in raw:
            raise _refusal(prefix + name, "is missing")
    return {name: readers[name](prefix + name, value) for name, value in raw.items()}


def _of(kind: type) -> _Reader:
    def read(name: str, value: Any) -> Any:
        if type(value) is not kind:  # bool is an int to isinstance
            raise _refusal(name, f"{value!r} is not of type {kind.__name__}")
        return value

    return read


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _score(name: str, value: Any) -> float:
    """A log-probability: any float."""
    if type(value) is str and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    if type(value) not in (float, int) or not abs(value) <= _LARGEST:
        raise _refusal(name, f"{value!r:.40} is not a number")
    return float(value)


def _seconds(name: str, value: Any) -> float:
    if type(value) not in (float, int) or not 0 <= value <= _LARGEST:
        raise _refusal(name, f"{value!r:.40} is no time")
    return float(value)


def _count(name: str, value: Any) -> int:
    if not 0 <= _integer(name, value) <= MOST:
        raise _refusal(name, f"{value!r:.40} is out of range")
    return int(value)


def _tuple_of(kind: type, read: _Reader, usual: Callable[[list[Any]], bool] = lambda values: True) -> _Reader:
    """A list as a tuple; all elements of the usual type are looked at in one go, as journals are long."""

    def read_all(name: str, value: Any) -> tuple[Any, ...]:
        if set(map(type, _list(name, value))) <= {kind} and usual(value):
            return tuple(value)
        return tuple(read(name, x) for x in value)

    return read_all


def _are_finite(values: list[float]) -> bool:
    return all(map(math.isfinite, values))


def _best(name: str, value: Any) -> tuple[tuple[tuple[str, float], ...], ...]:
    try:
        return tuple(
            tuple([(_text(name, t), _score(name, x)) for t, x in _list(name, row)]) for row in _list(name, value)
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise _refusal(name, "is not made of pairs") from None


def _condition(name: str, value: Any) -> Condition:
    return as_condition({factor: _text(name, level) for factor, level in _object(name, value).items()})


def _evidence(name: str, value: Any) -> Evidence:
    return Evidence(**_fields(f"{name}.", _object(name, value), _EVIDENCE))


def _timing(name: str, value: Any) -> Timing:
    return Timing(**_fields(f"{name}.", _object(name, value), _TIMING, required=("started", "total_s")))


_COUNTED_HERE = ("in_flight", "background", "stream_events")
_text, _integer, _boolean, _list, _object = _of(str), _of(int), _of(bool), _of(list), _of(dict)
# A target may count in any integers; only what is counted here has a range.
_EVIDENCE = dict.fromkeys(Evidence.__dataclass_fields__, _integer) | dict.fromkeys(_COUNTED_HERE, _count)
_TIMING = dict.fromkeys(Timing.__dataclass_fields__, _seconds)
_READERS: Mapping[str, _Reader] = {
    **dict.fromkeys(Observation.__dataclass_fields__, _text),
    "run": _count,
    "attempts": _count,
    "condition": _condition,
    "token_ids": _tuple_of(int, _integer),
    "tokens": _tuple_of(str, _text),
    "logprobs": _tuple_of(float, _score, _are_finite),
    "top_logprobs": _best,
    "correct": _boolean,
    "evidence": _evidence,
    "timing": _timing,
}
