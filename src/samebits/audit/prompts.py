"""What is asked: prompts from a JSONL file, or the bundled set; and how an answer is judged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, get_args

import orjson

from samebits.audit.views import numbers
from samebits.errors import InputError
from samebits.numerics import canonical_json, digest_json

Kind = Literal["text", "number", "label", "json"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
BUNDLED: Final = "bundled"
ROLES: Final = ("system", "user", "assistant")
REMEDY: Final = "One JSON object a line with messages; see docs/guide/audit.md."
_FENCE: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt of an audit.

    Attributes:
        id: for the results.
        messages: the conversation, each message with ``role`` and ``content``.
        kind: what the answer is: ``text``; ``number``, its last one counts; ``label``, one of ``labels``; ``json``.
        labels: for kind ``label``.
        schema: JSON schema that is sent along where the target accepts one.
        expected: the right answer: a text that must occur, a number, a label or a JSON value; None where nothing is
            expected.
    """

    id: str
    messages: tuple[Mapping[str, str], ...]
    kind: Kind = "text"
    labels: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    expected: Any = None

    @property
    def characters(self) -> int:
        """Length of all contents."""
        return sum(len(message["content"]) for message in self.messages)


@dataclass(frozen=True)
class Judgement:
    """What was read out of an answer; see ``Observation`` for the fields."""

    answer: str | None
    correct: bool | None
    parsed: str | None = None


def judge(prompt: Prompt, text: str) -> Judgement:
    """Reads the answer to a prompt.

    A label is the one that occurs first in the text as a word of its own. A number is the last one. JSON is the whole
    text, or its first fenced block. A ``text`` with an expected answer gives whether that occurs in it.
    """
    value, found = _read_json(text)
    parsed = canonical_json(value).decode("utf-8") if found else None
    if prompt.kind == "json":
        right = None if prompt.expected is None else found and parsed == _canonical(prompt.expected)
        return Judgement(parsed, right, parsed)
    if prompt.kind == "number":
        number = read_number(text)
        right = None if prompt.expected is None else number is not None and float(number) == float(prompt.expected)
        return Judgement(number, right, parsed)
    if prompt.kind == "label":
        label = read_label(text, prompt.labels)
        return Judgement(label, None if prompt.expected is None else label == prompt.expected, parsed)
    if prompt.expected is None:
        return Judgement(None, None, parsed)
    right = str(prompt.expected).casefold() in text.casefold()
    return Judgement(str(prompt.expected) if right else None, right, parsed)


def read_number(text: str) -> str | None:
    """The last number of a text, as `views.numbers` writes it."""
    return next(reversed(numbers(text)), None)


def read_label(text: str, labels: Sequence[str]) -> str | None:
    """The label that occurs first as a word of its own, in any case; of those at one place the longest."""
    places = [
        (match.start(), -len(label), label)
        for label in labels
        if (match := re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text, re.IGNORECASE))
    ]
    return min(places)[2] if places else None


def _read_json(text: str) -> tuple[Any, bool]:
    fenced = _FENCE.search(text)
    for candidate in (text, fenced.group(1) if fenced else None):
        if candidate is None or candidate.lstrip()[:1] not in ("{", "["):
            continue
        try:
            value = json.loads(candidate)
            canonical_json(value)
            return value, True
        except (ValueError, RecursionError):  # InputError is one: no canonical form
            continue
    return None, False


def _canonical(value: Any) -> str:
    return canonical_json(value).decode("utf-8")


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_prompts(source: str) -> tuple[Prompt, ...]:
    """The prompts of a JSONL file, or of the bundled set where the source is ``bundled``.

    Raises:
        InputError: the file cannot be read, or a line is wrong; its number is named.
    """
    if source == BUNDLED:
        text = resources.files("samebits.audit").joinpath("data", "prompts.jsonl").read_text("utf-8")
    else:
        try:
            text = Path(source).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read: {error}", field="prompts", remedy=REMEDY) from error
    prompts: list[Prompt] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            prompts.append(_prompt(line, f"prompts, line {number}", len(prompts)))
    if not prompts:
        raise InputError("holds no prompts", field="prompts", remedy=REMEDY)
    ids = [prompt.id for prompt in prompts]
    for name in ids:
        if ids.count(name) > 1:
            raise InputError(f"two prompts have the id {name!r}", field="prompts", remedy="Give each its own.")
    return tuple(prompts)


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """Digest of all that prompts say."""
    return digest_json([{**vars(prompt), "messages": list(prompt.messages)} for prompt in prompts])


def _prompt(line: str, where: str, index: int) -> Prompt:
    def refuse(message: str) -> InputError:
        return InputError(message, field=where, remedy=REMEDY)

    try:
        raw = json.loads(line)
        # What can be sent, and what has a digest: no lone surrogates, no infinities, no integers beyond 64 bits.
        orjson.dumps(raw)
        canonical_json(raw)
    except (ValueError, TypeError, RecursionError) as error:
        raise refuse(f"is not JSON that can be sent: {error}") from None
    if not isinstance(raw, dict):
        raise refuse("is not an object")
    for name in raw:
        if name not in Prompt.__dataclass_fields__:
            raise refuse(f"{name!r} is unknown")
    messages = raw.get("messages")
    if not isinstance(messages, list) or not messages:
        raise refuse("has no messages")
    for message in messages:
        if not isinstance(message, dict) or message.keys() != {"role", "content"} or message["role"] not in ROLES:
            raise refuse(f"a message needs role ({', '.join(ROLES)}) and content, and nothing else")
        if not isinstance(message["content"], str) or not message["content"]:
            raise refuse("a content is not a text, or is empty")
    labels, schema = raw.get("labels", []), raw.get("schema")
    if not isinstance(labels, list) or not all(isinstance(label, str) and label for label in labels):
        raise refuse("labels is not a list of texts")
    if schema is not None and not isinstance(schema, dict):
        raise refuse("schema is not an object")
    kind = raw.get("kind") or ("label" if labels else "json" if schema is not None else "text")
    if kind not in KINDS:
        raise refuse(f"kind {kind!r} is unknown; there are {', '.join(KINDS)}")
    if (kind == "label") != bool(labels):
        raise refuse("labels belong to kind label, and to it alone")
    name, expected = raw.get("id", f"prompt-{index + 1}"), raw.get("expected")
    if not isinstance(name, str) or not name:
        raise refuse("id is not a text")
    problem = {
        "text": not isinstance(expected, str) or not expected,
        "number": isinstance(expected, bool) or not isinstance(expected, int | float),
        "label": expected not in labels,
        "json": False,
    }
    if expected is not None and problem[kind]:
        raise refuse(f"expected {expected!r} is nothing that kind {kind} can give")
    return Prompt(id=name, messages=tuple(messages), kind=kind, labels=tuple(labels), schema=schema, expected=expected)
