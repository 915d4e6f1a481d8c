"""Comparison and causes on made-up answers; ten thousand records in bounded memory."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.ledger.conftest import DIGEST, make_entry

from samebits.errors import MeasurementError
from samebits.ledger import Digests, Entry, ModelRef, Privacy
from samebits.ledger.body import seal
from samebits.ledger.causes import Again, Compared, first_difference, likely_cause
from samebits.ledger.chain import Head, link
from samebits.ledger.entry import Record
from samebits.ledger.replay import Outcome, Recorded, is_sampled, replay

FALSE = "sha256:" + "0" * 64


def record_of(entry: Entry, seq: int = 1, privacy: Privacy | None = None) -> Record:
    sealed = seal(entry, privacy or Privacy())
    return link(Head(seq - 1), tenant=entry.tenant, id=entry.id, kind=entry.kind, time_ns=1, body=sealed.body)


def body_of(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(record_of(make_entry(**changes)).body or b"")
    return body


def again(**changes: Any) -> Again:
    """What `make_entry` recorded, once more."""
    block = {"prompt_tokens_sha256": DIGEST, "output_tokens_sha256": DIGEST, "logprobs_sha256": DIGEST}
    values: dict[str, Any] = {"answer": make_entry().answer, "block": block, "fingerprint": DIGEST, "model": "m"}
    return Again(**(values | changes))


def block(**changes: Any) -> dict[str, Any]:
    return dict(again().block) | changes


UPSTREAM = ModelRef(asked="m", name="m", engine="upstream")
NO_DIGESTS: dict[str, Any] = {"digests": Digests(), "model": UPSTREAM}
SAID = {"choices": [{"message": {"role": "assistant", "content": "answer 7"}}]}


@pytest.mark.parametrize(
    ("recorded", "today", "difference", "cause"),
    [
        ({}, {"model": "m2"}, None, "alias moved: m answered then, m2 now"),
        ({}, {"fingerprint": FALSE}, None, "fingerprint: model, profile or contract"),
        ({}, {"block": block(prompt_tokens_sha256=FALSE)}, "ids of the prompt", "rendered in another way"),
        (
            {"digests": Digests(rendered_prompt=DIGEST, prompt_tokens=DIGEST, output_tokens=DIGEST)},
            {"block": block(rendered_prompt_sha256=DIGEST, prompt_tokens_sha256=FALSE)},
            "ids of the prompt",
            "other ids of the same text",
        ),
        (
            {"digests": Digests(rendered_prompt=DIGEST, prompt_tokens=DIGEST, output_tokens=DIGEST)},
            {"block": block(rendered_prompt_sha256=FALSE, prompt_tokens_sha256=FALSE)},
            "text of the prompt",
            "rendered in another way",
        ),
        (
            {"date": "2024-07-26"},
            {"block": block(prompt_tokens_sha256=FALSE), "date": "2024-07-27"},
            "ids of the prompt",
            "the date in the chat template: 2024-07-26 then, 2024-07-27 now",
        ),
        (
            {},
            {"block": block(output_tokens_sha256=FALSE, params={"temperature": {"value": 1}})},
            "ids of the output",
            "other parameters: temperature 0 then, 1 now",
        ),
        ({}, {"block": block(logprobs_sha256=FALSE)}, "log-probabilities, not the text", "run samebits doctor"),
        ({"level_declared": "none"}, {"block": block(logprobs_sha256=FALSE)}, "log-prob", "promises nothing"),
        (
            {"environment": DIGEST},
            {"block": block(logprobs_sha256=FALSE), "environment": FALSE},
            "log-prob",
            "the environment is another one",
        ),
        (
            {"digests": Digests(form=DIGEST, output_tokens=DIGEST)},
            {"block": block(form_sha256=FALSE)},
            "grammar",
            "another version of llguidance",
        ),
        (
            NO_DIGESTS | {"params": {}},
            {"answer": SAID, "fingerprint": None},
            "/choices/0/message/content, character 7: '1' then, '7' now",
            "sampling without a seed",
        ),
        (
            NO_DIGESTS | {"seed": 7, "level_declared": "best-effort"},
            {"answer": SAID, "fingerprint": None},
            "character 7",
            "states no fingerprint and gives the level best-effort",
        ),
        (
            NO_DIGESTS | {"model": ModelRef(asked="m", name="m", engine="upstream", fingerprint="fp_1"), "seed": 7},
            {"answer": SAID, "fingerprint": "fp_2"},
            "character 7",
            "the upstream moved",
        ),
        (
            NO_DIGESTS | {"model": ModelRef(asked="m", name="m", engine="upstream", fingerprint="fp_1"), "seed": 7},
            {"answer": SAID, "fingerprint": "fp_1"},
            "character 7",
            "does not repeat itself",
        ),
        ({}, {"answer": {"choices": []}}, "/choices: 1 item then, 0 now", "run samebits doctor"),
    ],
)
def test_the_first_difference_and_its_cause(
    recorded: dict[str, Any], today: dict[str, Any], difference: str | None, cause: str
) -> None:
    body, now = body_of(**recorded), again(**today)
    compared = first_difference(body, now)
    assert compared is not None
    assert compared.differs == (difference is not None)
    assert difference is None or difference in compared.said
    assert cause in likely_cause(body, now, compared)


def test_the_same_answer_is_the_same() -> None:
    volatile = {"id": "another", "created": 5, "usage": {"x": 1}, **dict(again().answer)}
    assert first_difference(body_of(), again(answer=volatile)) == Compared(
        False, compared=("prompt_tokens", "output_tokens", "logprobs", "answer")
    )
    assert first_difference(body_of(digests=Digests(), answer=None), again()) is None


def test_a_redacted_answer_is_told_by_its_digests() -> None:
    entry = make_entry(answer={"choices": [{"message": {"content": "to a@example.org"}}]})
    body = json.loads(record_of(entry, privacy=Privacy("redacted")).body or b"")
    assert first_difference(body, again()) == Compared(False, compared=("prompt_tokens", "output_tokens", "logprobs"))


def test_a_redacted_request_is_not_sent() -> None:
    entry = make_entry(request={"prompt": "a@example.org"})
    kept = Recorded.of(record_of(entry, privacy=Privacy("redacted")))
    with pytest.raises(MeasurementError, match="stored as redacted"):
        kept.again()
    whole = Recorded.of(record_of(make_entry(), privacy=Privacy("redacted")))  # nothing was found in it
    assert whole.again()["messages"] == make_entry().request["messages"]  # type: ignore[index,call-overload]


def test_what_was_in_effect_is_sent_again() -> None:
    params = {
        "temperature": {"value": 0.5, "origin": "policy strict"},
        "top_p": {"value": 0.9, "origin": "request"},
        "stop": {"value": ["x"], "origin": "request"},
        "max_tokens": {"value": 5, "origin": "samebits"},
    }
    request = {"messages": [], "top_p": 0.9, "stream": True, "stream_options": {}, "max_completion_tokens": 5}
    sent = Recorded.of(record_of(make_entry(request=request, params=params, seed=2**63 - 1))).again()
    assert sent == {
        "messages": [],
        "top_p": 0.9,
        "max_completion_tokens": 5,
        "temperature": 0.5,
        "seed": 2**63 - 1,
    }


def test_what_an_earlier_version_did_not_note_is_not_measured() -> None:
    """Its records have no ``changes``; a forced parameter stands among the parameters alone."""
    params = {"temperature": {"value": 0, "origin": "policy critical"}}
    for route, request, known in (
        ("/v1/completions", {"prompt": "Hi"}, True),  # it is put in
        ("/v1/completions", {"prompt": "Hi", "temperature": 1.5}, False),
        ("/generate", {"text": "Hi", "sampling_params": {"temperature": 0}}, True),
        ("/generate", {"text": "Hi"}, False),
    ):
        now = Recorded.of(record_of(make_entry(route=route, request=request, params=params)))
        now.again()
        before = replace(now, body={name: value for name, value in now.body.items() if name != "changes"})
        if known:
            assert before.again() == now.again()
        else:
            with pytest.raises(MeasurementError, match="earlier version: what the policy critical made"):
                before.again()


def test_ten_thousand_records_in_the_memory_of_a_few() -> None:
    """Counts what is held at a time: records that were read and not told of, and requests that live."""
    body, read, told, live, most = record_of(make_entry()).body, 0, list[Outcome](), 0, [0, 0]
    assert body is not None

    def records() -> Iterator[Record]:
        nonlocal read
        for read in range(1, 10_001):
            yield link(Head(read - 1), tenant="t", id=f"id-{read}", kind="answer", time_ns=1, body=body)

    def gone() -> None:
        nonlocal live
        live -= 1

    async def answer(recorded: Recorded, body: Mapping[str, Any]) -> Again:
        nonlocal live
        live += 1
        weakref.finalize(recorded, gone)
        most[:] = max(most[0], read - len(told)), max(most[1], live)
        await asyncio.sleep(0)
        assert body["messages"]
        if recorded.seq % 100 == 0:
            raise MeasurementError("no model")
        return again(block=block(logprobs_sha256=FALSE)) if recorded.seq % 1000 == 1 else again()

    summary = asyncio.run(replay(records(), answer, told.append, together=8))
    assert [outcome.seq for outcome in told] == list(range(1, 10_001))
    assert (summary.same, summary.differs, summary.not_measured) == (9890, 10, 100)
    assert most[0] <= 9
    assert most[1] <= 16


def test_a_sample_is_a_share_and_always_the_same() -> None:
    records = [record_of(make_entry(i), i + 1) for i in range(400)]
    chosen = [r for r in records if is_sampled(r, 0.25, 0)]
    assert chosen == [r for r in records if is_sampled(r, 0.25, 0)]
    assert 60 < len(chosen) < 140
    assert chosen != [r for r in records if is_sampled(r, 0.25, 1)]
    assert all(is_sampled(r, 1.0, 0) for r in records)
