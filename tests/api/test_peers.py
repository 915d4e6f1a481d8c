"""Our answers have the shapes of OpenAI's specification, and those of the peers but for what is listed with a reason.

llama.cpp's server is started where `xllamacpp` is installed (`make peers`). Any other peer that runs is compared by
``pytest tests/api/test_peers.py --peer NAME=URL``; differences known of it are the rows of that name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from answer_shapes import shape, violations
from live import live
from peer_cases import CASES, Answered, Case, ask
from peer_differences import DIFFERENCES, Difference
from peer_process import llama_cpp

from samebits import LLM

LLAMA_CPP = "llama.cpp"


@dataclass(frozen=True)
class Peer:
    """A server of another kind that runs, and the name of its model."""

    name: str
    http: httpx.Client
    model: str

    @classmethod
    def at(cls, name: str, url: str) -> Peer:
        # A connection for each request: llama.cpp's server closes one that it has refused something on.
        limits = httpx.Limits(max_keepalive_connections=0)
        http = httpx.Client(base_url=url.rstrip("/").removesuffix("/v1"), timeout=600, limits=limits)
        return cls(name, http, http.get("/v1/models").json()["data"][0]["id"])


@pytest.fixture(scope="module")
def ours(smollm2_path: Path) -> Iterator[Mapping[str, Answered]]:
    with LLM("smollm2") as llm, live({"smollm2": llm}) as server:
        yield {case.name: ask(server.http, "smollm2", case) for case in CASES}


@pytest.fixture(scope="module")
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path
) -> Iterator[Peer]:
    if named := request.config.getoption("--peer"):
        name, _, url = named.partition("=")
        yield Peer.at(name, url)
    elif importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("not installed: xllamacpp (make peers)")
    else:
        with llama_cpp(str(smollm2_path), tmp_path_factory.mktemp("peer") / "log") as url:
            yield Peer.at(LLAMA_CPP, url)


def differences(case: Case, ours: Answered, theirs: Answered) -> Iterator[tuple[str, str, str, str]]:
    """Where two answers differ: kind of answer, path, our types and theirs."""
    if ours.status != theirs.status:
        yield case.name, "status", str(ours.status), str(theirs.status)
        return  # an answer and a refusal have nothing to compare
    for kind in sorted({*ours.bodies, *theirs.bodies}):
        if (kind in ours.bodies) != (kind in theirs.bodies):
            yield kind, "", *("met" if kind in side.bodies else "absent" for side in (ours, theirs))
            continue
        specified = kind.partition(":")[0]
        a, b = (shape(specified, side.bodies[kind]) for side in (ours, theirs))
        for path in sorted({*a, *b}):
            # A field below one that differs says nothing more.
            above = [p for p in (*a, *b) if path != p and path.startswith((p + ".", p + "[")) and a.get(p) != b.get(p)]
            if a.get(path) != b.get(path) and not above:
                yield kind, path, *("|".join(sorted(side.get(path, {"absent"}))) for side in (a, b))


def test_our_answers_keep_to_the_specification(ours: Mapping[str, Answered]) -> None:
    for case in CASES:
        answered = ours[case.name]
        assert (answered.status == 200) is not case.error, (case.name, answered)
        for kind, bodies in answered.bodies.items():
            assert violations(kind.partition(":")[0], bodies) == [], case.name


@pytest.mark.peer
def test_a_peer_answers_in_the_same_shapes(ours: Mapping[str, Answered], peer: Peer) -> None:
    found = {
        difference: case.name
        for case in CASES
        for difference in differences(case, ours[case.name], ask(peer.http, peer.model, case))
    }
    known = {(d.where, d.path, d.ours, d.theirs) for d in DIFFERENCES.get(peer.name, ())}
    new = [f"{', '.join(d)} (met in: {name})" for d, name in found.items() if d not in known]
    assert not new, f"{peer.name} differs in fields that are not listed:\n" + "\n".join(new)
    gone = known - found.keys()
    assert not gone, f"listed, but not met: {gone}"


# ---- negative controls -----------------------------------------------------------------------------------------------


GOOD = {
    "id": "a",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "logprobs": None, "message": {"role": "assistant", "content": "x"}}
    ],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": 7}, "id is integer, not string"),
        ({"created": 1.5}, "created is number, not integer"),
        ({"choices": {}}, "choices is object, not array"),
        ({"choices": [{"index": 0, "finish_reason": "stop"}]}, "choices[].message is absent, not object"),
        ({"usage": {"prompt_tokens": None}}, "usage.prompt_tokens is null, not integer"),
    ],
)
def test_negative_control_a_broken_answer_is_seen(change: Mapping[str, object], said: str) -> None:
    assert violations("chat", [GOOD]) == []
    assert said in violations("chat", [GOOD | dict(change)])


def test_negative_control_a_new_difference_is_seen() -> None:
    case = CASES[0]
    theirs = GOOD | {"system_fingerprint": None, "odd": 1}
    found = list(differences(case, Answered(200, {"chat": [GOOD]}), Answered(200, {"chat": [theirs]})))
    assert found == [("chat", "system_fingerprint", "absent", "null")], "only what OpenAI defines is compared"
    refused = Answered(400, {"error": [{"error": {"message": "no", "type": "x"}}]})
    assert list(differences(case, Answered(200, {"chat": [GOOD]}), refused)) == [("chat", "status", "200", "400")]


@pytest.mark.parametrize("row", [d for rows in DIFFERENCES.values() for d in rows], ids=lambda d: d.where)
def test_each_difference_has_a_reason(row: Difference) -> None:
    assert len(row.why) > 10


def test_cases_have_names_of_their_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
