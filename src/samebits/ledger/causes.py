"""What differs between a recorded answer and the one of today, and why that is likely so. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from samebits.counted import counted
from samebits.ledger.canonical import canonical, digest

Stage = Literal["answer", "form", "rendered_prompt", "prompt_tokens", "output_tokens", "logprobs"]

# What digests are of, in the order in which one follows from the other: what is first is nearest to the cause.
_STAGES: Final[Mapping[Stage, str]] = {
    "form": "the grammar that the answer was held to",
    "rendered_prompt": "the text of the prompt",
    "prompt_tokens": "the ids of the prompt",
    "output_tokens": "the ids of the output",
    "logprobs": "bits of the log-probabilities, not the text",
}
# Members of an answer whose value is another one each time.
_VOLATILE: Final = frozenset(
    {"id", "created", "created_at", "completed_at", "call_id", "samebits", "usage", "system_fingerprint"}
)
_ANSWERED: Final = ("choices", "output", "text", "output_ids", "content")
_SHOWN: Final = 30  # characters of a text around the first difference


@dataclass(frozen=True)
class Again:
    """An answer of today.

    Attributes:
        answer: the body of the response.
        block: its block ``samebits``.
        fingerprint: ``system_fingerprint``.
        model: the name that the answer states.
        date: today's date for chat templates, as the answering server has it.
        environment: of the answering process.
    """

    answer: Mapping[str, Any]
    block: Mapping[str, Any]
    fingerprint: str | None
    model: str | None
    date: str | None = None
    environment: str | None = None


@dataclass(frozen=True)
class Compared:
    """The result of a comparison: whether, at which stage, and in words."""

    differs: bool
    stage: Stage | None = None
    said: str = ""
    compared: tuple[str, ...] = ()


def first_difference(body: Mapping[str, Any], again: Again) -> Compared | None:
    """Compares digests, then the answers themselves as far as they are stored; None where nothing can be compared.

    Args:
        body: of the record.
    """
    recorded, compared = body["digests"], list[str]()
    for name, meaning in _STAGES.items():
        before, now = recorded.get(name), again.block.get(f"{name}_sha256")
        if before is None or now is None:
            continue
        compared.append(name)
        if before != now:
            place = _place(body, again) if name == "output_tokens" else None
            said = f"{meaning}: {before} then, {now} now"
            return Compared(True, name, f"{said}; {place}" if place else said, tuple(compared))
    stored = body.get("answer")
    if isinstance(stored, Mapping) and digest(canonical(stored)) == recorded.get("answer"):
        compared.append("answer")
        if place := _place(body, again):
            return Compared(True, "answer", place, tuple(compared))
    # An answer that was streamed, or whose text is not stored, is told by the digest of its ids.
    return Compared(False, compared=tuple(compared)) if {"output_tokens", "answer"} & set(compared) else None


def _place(body: Mapping[str, Any], again: Again) -> str | None:
    """The first place at which the stored answer and today's say something else."""
    stored = body.get("answer")
    if not isinstance(stored, Mapping):
        return None
    for name in _ANSWERED:
        if name in stored and name in again.answer:
            for place in _differences(stored[name], again.answer[name], f"/{name}"):
                return place
    return None


def _differences(before: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in sorted((before.keys() & now.keys()) - _VOLATILE):  # a stream has not all that a whole answer has
            yield from _differences(before[name], now[name], f"{path}/{name}")
    elif isinstance(before, list) and isinstance(now, list):
        for i, (one, other) in enumerate(zip(before, now, strict=False)):
            yield from _differences(one, other, f"{path}/{i}")
        if len(before) != len(now):
            yield f"{path}: {counted(len(before), 'item')} then, {len(now)} now"
    elif isinstance(before, str) and isinstance(now, str):
        if before != now:
            same = next(
                (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
            )
            yield f"{path}, character {same}: {before[same : same + _SHOWN]!r} then, {now[same : same + _SHOWN]!r} now"
    elif canonical(before) != canonical(now):
        yield f"{path}: {_short(before)} then, {_short(now)} now"


def _short(value: Any) -> str:
    text = canonical(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def likely_cause(body: Mapping[str, Any], again: Again, compared: Compared) -> str:
    """Why two answers to one request differ, as far as the record tells; the nearest cause first."""
    model, upstream = body["model"], body["model"]["engine"] == "upstream"
    if model["name"] is not None and again.model is not None and model["name"] != again.model:
        return f"the alias moved: {model['name']} answered then, {again.model} now"
    if model["fingerprint"] != again.fingerprint and None not in (model["fingerprint"], again.fingerprint):
        what = "the upstream moved: another model or backend" if upstream else "fingerprint: model, profile or contract"
        return f"{what} ({model['fingerprint']} then, {again.fingerprint} now)"
    changed = _changed_params(body, again)
    if changed:
        return f"other parameters: {changed}"
    if compared.stage == "prompt_tokens" and "rendered_prompt" in compared.compared:
        return "the tokenizer made other ids of the same text: another version of tokenizers or samebits"
    if compared.stage in ("rendered_prompt", "prompt_tokens"):
        if body["date"] is not None and again.date is not None and body["date"] != again.date:
            return f"the date in the chat template: {body['date']} then, {again.date} now"
        return "the prompt was rendered in another way"
    if compared.stage == "form":
        return "the structure was compiled in another way: another version of llguidance or samebits"
    if upstream:
        return _cause_upstream(body)
    if body["level"]["declared"] == "none":
        return "the profile promises nothing"
    moved = body["environment"] is not None and again.environment not in (None, body["environment"])
    where = "; the environment is another one" if moved else ""
    return f"same fingerprint, prompt and parameters: a fault of samebits or of the machine; run samebits doctor{where}"


def _changed_params(body: Mapping[str, Any], again: Again) -> str:
    now: Mapping[str, Any] = again.block.get("params") or {}
    names = []
    for name, then in body["params"].items():
        if name in now and "digest" not in (then["value"] if isinstance(then["value"], Mapping) else {}):
            value = now[name].get("value")
            if canonical(value) != canonical(then["value"]) and name != "seed":
                names.append(f"{name} {_short(then['value'])} then, {_short(value)} now")
    return ", ".join(names)


def _cause_upstream(body: Mapping[str, Any]) -> str:
    params = {name: item.get("value") for name, item in body["params"].items()}
    temperature = params.get("temperature")
    if body["seed"] is None and params.get("seed") is None and temperature != 0:
        return "sampling without a seed"
    level = body["level"]["declared"]
    if body["model"]["fingerprint"] is None:
        return (
            f"the upstream states no fingerprint and gives the level {level}: it may have moved, or not repeat itself"
        )
    return f"the upstream, which is declared to give the level {level}, does not repeat itself"
