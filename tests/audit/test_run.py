"""The runner against a server whose faults are known: what is sent, how often, beside what, and what is noted."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from audits import Audited, audited, plan_of, prompts_of
from stub_server import BACKGROUND, Answer, Incoming, Stub, stub

from samebits.audit.carry_out import carry_out
from samebits.audit.journal import Journal, read_journal
from samebits.audit.plan import Plan
from samebits.audit.run import LOST
from samebits.audit.targets import HttpSpec
from samebits.errors import InputError, MeasurementError
from waiting import PATIENCE_S

FOREVER = 10 * PATIENCE_S
SETTINGS: Mapping[str, Any] = {"times": 1, "orders": 1}


def plan(count: int, **values: Any) -> Plan:
    return plan_of(prompts_of(count), **SETTINGS | values)


def audit(server: Stub, path: Path, count: int = 4, **values: Any) -> Audited:
    return audited(server, path, prompts=prompts_of(count), **SETTINGS | values)


def yes(incoming: Incoming) -> Answer:
    return Answer("yes it is", seed=incoming.body.get("seed"))


def test_each_request_of_the_plan_is_sent_once_and_noted(tmp_path: Path) -> None:
    with stub(yes) as server:
        ran = audit(server, tmp_path / "j")
    sent = Counter(body["messages"][0]["content"] for body in server.asked[1:])  # the first is the probe
    assert sent == {f"Say {i}": 4 for i in range(4)}
    assert len(ran.observations) == 16
    one = ran.observations[0]
    assert (one.text, one.tokens, one.logprobs) == ("yes it is", ("yes", "it", "is"), (-0.25,) * 3)
    assert one.fingerprint == "stub-1"
    assert len({o.body for o in ran.observations if o.prompt_id == "p1"}) == 1


def test_the_seed_is_sent_and_its_echo_noted(tmp_path: Path) -> None:
    with stub(yes) as server:
        ran = audit(server, tmp_path / "j", seeds=("fixed", "none"), seed=77, temperature=0.5)
    assert Counter(body.get("seed") for body in server.asked[1:]) == {77: 16, None: 16}
    found = {(o.level("seed"), o.evidence.seed_sent, o.evidence.seed_echoed) for o in ran.observations}
    assert found == {("fixed", 77, 77), ("none", None, None)}


def test_a_seed_that_is_not_used_is_seen(tmp_path: Path) -> None:
    with stub(lambda incoming: Answer(seed=1)) as server:
        ran = audit(server, tmp_path / "j", seed=77)
    assert {(o.evidence.seed_sent, o.evidence.seed_echoed) for o in ran.observations} == {(77, 1)}


def test_concurrency_is_reached_and_noted(tmp_path: Path) -> None:
    first = next(plan(10, concurrency=(1, 8)).blocks())
    assert first.concurrency == 8, "alone, the first request would wait for a crowd that never comes"
    with stub(lambda incoming: Answer(crowd=8 if incoming.number else 1)) as server:  # number 0 is the probe
        ran = audit(server, tmp_path / "j", count=10, concurrency=(1, 8))
    assert server.most_in_flight == 8
    for level in ("1", "8"):
        reached = [o.evidence.in_flight for o in ran.observations if o.level("concurrency") == level]
        assert max(r for r in reached if r is not None) == int(level)
        assert sum(r == int(level) for r in reached) > 30


def test_load_is_sent_beside_the_plan_and_noted(tmp_path: Path) -> None:
    with stub(lambda incoming: Answer(delay=0.01)) as server:
        ran = audit(server, tmp_path / "j", load=("off", "on"))
        counts = plan(4, load=("off", "on")).counts
    others = [body for body in server.asked if body["messages"][0]["content"].startswith(BACKGROUND)]
    assert len(others) == counts.background
    assert len(server.asked) == counts.total
    assert {o.evidence.background for o in ran.observations if o.level("load") == "off"} == {0}
    beside = [o.evidence.background or 0 for o in ran.observations if o.level("load") == "on"]
    assert sum(b > 0 for b in beside) >= len(beside) / 2


def test_load_that_is_turned_away_is_no_load(tmp_path: Path) -> None:
    def turns_away(incoming: Incoming) -> Answer:
        return Answer(status=400) if incoming.prompt.startswith(BACKGROUND) else Answer(delay=0.02)

    with stub(turns_away) as server:
        ran = audit(server, tmp_path / "j", load=("on",), runs=20)
    assert "background requests failed" in ran.measured.notes["load"]
    met = sum((o.evidence.background or 0) > 0 for o in ran.observations)
    assert met < 0.5 * len(ran.observations), "only those before the first refusal"
    with stub(lambda incoming: Answer(delay=0.02)) as server:
        ran = audit(server, tmp_path / "k", load=("on",), runs=20)
    assert "load" not in ran.measured.notes, "the control"
    assert sum((o.evidence.background or 0) > 0 for o in ran.observations) > 0.5 * len(ran.observations)


def test_what_ends_a_background_request_ends_the_audit(tmp_path: Path) -> None:
    def patience(incoming: Incoming) -> Answer:
        asks = incoming.prompt.startswith(BACKGROUND)
        return Answer(status=429, headers={"retry-after": "90000"}) if asks else Answer(delay=0.02)

    with stub(patience) as server, pytest.raises(MeasurementError, match="wait 90000 s"):
        audit(server, tmp_path / "j", load=("on",), runs=50)
    assert len(server.requests) < 100


def test_prefixes_are_cold_and_warm_as_planned(tmp_path: Path) -> None:
    with stub(yes) as server:
        ran = audit(server, tmp_path / "j", prefix=("cold", "warm"))
    assert server.flushes >= 16
    found = {(o.level("prefix"), (o.evidence.cached_tokens or 0) > 0) for o in ran.observations}
    assert found == {("cold", False), ("warm", True)}


def test_a_cache_that_cannot_be_emptied_is_said(tmp_path: Path) -> None:
    with stub(yes, flush=False) as server:
        ran = audit(server, tmp_path / "j", prefix=("cold", "warm"))
    assert "offers no way" in ran.measured.notes["prefix"]


def test_a_way_to_empty_the_cache_is_found_by_many_at_once(tmp_path: Path) -> None:
    """Eight requests look for it together, and the first way that is tried does not exist."""
    with stub(yes, flush=False, reset=lambda number: True) as server:
        ran = audit(server, tmp_path / "j", prefix=("cold",), concurrency=(8,), runs=8)
        assert server.resets == 32
    assert "prefix" not in ran.measured.notes


def test_a_cache_that_was_not_emptied_each_time_is_said(tmp_path: Path) -> None:
    """vLLM answers 200 and says that it did not: requests held parts of it."""
    with stub(yes, flush=False, reset=lambda number: number % 4 > 0) as server:
        ran = audit(server, tmp_path / "j", prefix=("cold",), runs=8)
    assert ran.measured.notes["prefix"].startswith("8 of 32 times, the target could not empty its prefix cache; what a")
    assert {(o.evidence.cached_tokens or 0) > 0 for o in ran.observations} == {False, True}


def test_streams_give_the_same_observations(tmp_path: Path) -> None:
    with stub(yes) as server:
        ran = audit(server, tmp_path / "j", streaming=("off", "on"))
    assert Counter(bool(body.get("stream")) for body in server.asked[2:]) == {True: 16, False: 16}
    streamed = [o for o in ran.observations if o.level("streaming") == "on"]
    assert {o.evidence.stream_events for o in streamed} == {3}
    assert all(o.timing is not None and o.timing.first_token_s is not None for o in streamed)
    for name in ("text", "tokens", "token_ids", "logprobs", "top_logprobs", "finish_reason", "fingerprint"):
        assert len({getattr(o, name) for o in ran.observations}) == 1, name
    assert len({(o.prompt_id, o.body) for o in ran.observations}) == 4


# ---- what targets refuse ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "left_out"),
    [
        ("return_token_ids", {"return_token_ids"}),
        ("logprobs", {"logprobs", "top_logprobs"}),
        ("top_logprobs", {"top_logprobs"}),
        ("seed", {"seed"}),
    ],
)
def test_what_a_target_refuses_is_left_out_and_noted(tmp_path: Path, refused: str, left_out: set[str]) -> None:
    def picky(incoming: Incoming) -> Answer:
        if refused in incoming.body:
            return Answer("unknown parameter", status=400, extra={"param": refused})
        return Answer("yes")

    with stub(picky) as server:
        ran = audit(server, tmp_path / "j")
    assert not any(o.failed for o in ran.observations)
    assert refused in ran.measured.notes
    wanted = {"return_token_ids", "logprobs", "top_logprobs", "seed"}
    assert wanted - server.asked[-1].keys() == left_out


@pytest.mark.parametrize("status", [403, 422, 500, 501])
def test_a_refusal_of_any_status_is_understood_by_its_words(tmp_path: Path, status: int) -> None:
    """OpenAI answers 403 where a model may not tell log-probabilities: that is not about the key."""

    def picky(incoming: Incoming) -> Answer:
        if "logprobs" in incoming.body:
            return Answer("You are not allowed to request logprobs from this model", status=status)
        return Answer("yes")

    with stub(picky) as server:
        ran = audit(server, tmp_path / "j")
    assert ran.measured.notes.keys() == {"logprobs"}
    assert not any(o.failed for o in ran.observations)
    assert "top_logprobs" not in server.asked[-1]


@pytest.mark.parametrize(
    ("part", "message", "remedy"),
    [
        ("temperature", "'temperature' does not support 0 with this model", "--own-sampling"),
        ("top_p", "top_p is fixed", "--top-p"),
        ("max_tokens", "at most 4", "--max-tokens"),
        ("messages", "no system role", "--prompts"),
        ("model", "no such model", "--model"),
        (None, "I do not like it", "--top-logprobs -1"),
    ],
)
def test_what_cannot_be_left_out_is_refused_with_the_remedy_before_a_run(
    tmp_path: Path, part: str | None, message: str, remedy: str
) -> None:
    refused = Answer(message, status=400, extra={"param": part})
    with stub(lambda incoming: refused) as server, pytest.raises(InputError, match=message) as caught:
        audit(server, tmp_path / "j")
    assert remedy in caught.value.remedy
    # Nothing was left out in vain where it says what it is about: one question, and no run.
    assert len(server.asked) == (1 if part else 5)
    assert list(read_journal(tmp_path / "j")) == []


@pytest.mark.parametrize("logprob", [None, "low", True])
def test_log_probabilities_that_are_none_end_it_at_the_first_question(tmp_path: Path, logprob: object) -> None:
    """Some servers write null for the logarithm of 0, which JSON has no number for."""

    def odd(incoming: Incoming) -> Answer:
        choice = {"index": 0, "message": {"content": "yes"}, "finish_reason": "stop"}
        entry = {"token": "yes", "logprob": -0.5, "top_logprobs": [{"token": "no", "logprob": logprob}]}
        if "logprobs" in incoming.body:
            choice["logprobs"] = {"content": [entry]}
        return Answer(extra={"choices": [choice]})

    with stub(odd) as server:
        with pytest.raises(MeasurementError, match="--top-logprobs -1 asks for none"):
            audit(server, tmp_path / "j")
        assert len(server.asked) == 1
        ran = audit(server, tmp_path / "k", top_logprobs=None)
    assert {o.text for o in ran.observations} == {"yes"}


@pytest.mark.parametrize(
    ("most", "named", "asked", "used", "questions"),
    [
        (3, True, 5, 3, 2),
        (20, True, 20, 20, 1),  # the control
        (1, False, 20, 1, 3),
        (0, True, 5, 0, 2),
        (0, False, 20, 0, 4),
    ],
)
def test_best_tokens_beyond_the_limit_of_a_target_are_asked_for_within_it(
    tmp_path: Path, most: int, named: bool, asked: int, used: int, questions: int
) -> None:
    """vLLM names its --max-logprobs, and calls the part by another name; log-probabilities are kept."""

    def strict(incoming: Incoming) -> Answer:
        wanted = incoming.body.get("top_logprobs", 0)
        if wanted <= most:
            return Answer("yes")
        said = f"Requested sample logprobs of {wanted}, which is greater than " + (
            f"max allowed: {most}" if named else "what is right"
        )
        return Answer(said, status=400, extra={"param": "logprobs"})

    with stub(strict) as server:
        ran = audit(server, tmp_path / "j", top_logprobs=asked)
        assert {body.get("top_logprobs", 0) for body in server.asked[questions - 1 :]} == {used}
    assert all(o.logprobs is not None for o in ran.observations)
    assert not any(o.failed for o in ran.observations)
    assert ran.measured.known["first_questions"] == questions
    note = ran.measured.notes.get("top_logprobs")
    if used == asked:
        assert note is None
        return
    assert ran.measured.known["best_tokens"] == used
    assert note is not None
    assert note.startswith(f"{asked} best tokens are refused by the target (Requested sample logprobs of {asked}")
    assert note.endswith(f"{used} asked for" if used else "only the log-probability of the chosen token is asked for")


def test_what_was_said_of_a_number_is_dropped_with_the_log_probabilities(tmp_path: Path) -> None:
    def never(incoming: Incoming) -> Answer:
        if "top_logprobs" in incoming.body:
            return Answer("top_logprobs: too many", status=400)
        return Answer("logprobs are not supported", status=400) if "logprobs" in incoming.body else Answer("yes")

    with stub(never) as server:
        ran = audit(server, tmp_path / "j")
    assert ran.measured.notes == {"logprobs": "not accepted by the target: logprobs are not supported"}
    assert ran.measured.known["first_questions"] == 4


def test_what_a_target_does_not_take_is_said_before_the_runs(tmp_path: Path) -> None:
    said: list[tuple[int, str, dict[str, str]]] = []

    def picky(incoming: Incoming) -> Answer:
        return Answer("no seed", status=400) if "seed" in incoming.body else Answer("yes")

    small = plan(2)
    with stub(picky) as server, Journal(tmp_path / "j", small.digest(()), small.document()) as journal:
        spec = HttpSpec(name="a", url=server.url)

        def opened(name: str, notes: Mapping[str, str]) -> None:
            said.append((len(server.asked), name, dict(notes)))

        asyncio.run(carry_out(small, [spec], journal, timeout=PATIENCE_S, resend=False, opened=opened))
    assert said == [(2, "a", {"seed": "not accepted by the target: no seed"})]


def test_the_newer_name_of_the_limit_is_found(tmp_path: Path) -> None:
    def new(incoming: Incoming) -> Answer:
        if "max_tokens" in incoming.body:
            return Answer("Use 'max_completion_tokens' instead.", status=400, extra={"param": "max_tokens"})
        return Answer("yes")

    with stub(new) as server:
        audit(server, tmp_path / "j")
    assert server.asked[-1]["max_completion_tokens"] == 8


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ({"version": "0.11.2"}, {"version": "0.11.2", "header": "stub/3"}),
        ({"version": 3}, {"header": "stub/3"}),
        ([], {"header": "stub/3"}),
        (None, {}),
    ],
)
def test_what_the_server_says_about_itself_is_noted(tmp_path: Path, version: object, known: dict[str, str]) -> None:
    with stub(yes, version=version) as server:
        assert audit(server, tmp_path / "j").measured.known["server"] == known


def test_one_model_is_found_and_several_are_asked_about(tmp_path: Path) -> None:
    with stub(yes) as server:
        assert audit(server, tmp_path / "j").measured.known["model"] == "stub"
    with stub(yes, models=("a", "b")) as server, pytest.raises(InputError, match="2 models: a, b"):
        audit(server, tmp_path / "k")


def test_a_wrong_key_or_parameter_ends_it_at_the_first_question(tmp_path: Path) -> None:
    with stub(lambda incoming: Answer("no", status=401)) as server:
        with pytest.raises(InputError, match="key"):
            audit(server, tmp_path / "j")
        assert len(server.asked) == 1
    gone = Answer("no such model", status=404)
    with stub(lambda incoming: gone) as server, pytest.raises(InputError, match="no such model"):
        audit(server, tmp_path / "k")


def test_a_missing_key_of_the_last_target_is_said_before_the_first_is_asked(tmp_path: Path) -> None:
    small = plan(1)
    with stub(yes) as server, Journal(tmp_path / "j", small.digest(()), small.document()) as journal:
        specs = [HttpSpec(name="a", url=server.url), HttpSpec(name="b", url=server.url, key_env="NO_SUCH_VARIABLE")]
        work = carry_out(small, specs, journal, timeout=PATIENCE_S, resend=False)
        with pytest.raises(InputError, match="NO_SUCH_VARIABLE"):
            asyncio.run(work)
        assert server.requests == []


def test_nobody_at_home_is_not_measured(tmp_path: Path) -> None:
    with stub(yes) as server:
        pass
    with pytest.raises(MeasurementError, match="reached"):
        audit(server, tmp_path / "j")


# ---- failures --------------------------------------------------------------------------------------------------------


def every(n: int, fault: Answer) -> Callable[[Incoming], Answer]:
    return lambda incoming: fault if incoming.number % n == n - 1 else Answer("yes")


def in_two_seconds() -> str:
    """As a date of HTTP, which has whole seconds: one to two seconds from now."""
    return email.utils.formatdate(time.time() + 2, usegmt=True)


@pytest.mark.parametrize("retry_after", [lambda: "1", in_two_seconds])
def test_a_rate_limit_is_waited_for_by_everybody(tmp_path: Path, retry_after: Callable[[], str]) -> None:
    quiet: list[float] = []

    def limited(incoming: Incoming) -> Answer:
        if incoming.number == 6:
            quiet.append(time.monotonic())
            return Answer("slow down", status=429, headers={"retry-after": retry_after()})
        if quiet and incoming.number > 12:
            assert time.monotonic() - quiet[0] > 0.9, "a request came although the server had asked for quiet"
        return Answer("yes", delay=0.01)

    with stub(limited) as server:
        ran = audit(server, tmp_path / "j", concurrency=(4,))
    assert not any(o.failed for o in ran.observations)
    assert Counter(o.attempts for o in ran.observations) == {1: 15, 2: 1}
    assert ran.measured.progress.retries == 1


def test_hours_of_patience_are_not_waited(tmp_path: Path) -> None:
    later = Answer("later", status=429, headers={"retry-after": "7200"})
    with stub(every(5, later)) as server, pytest.raises(MeasurementError, match="7200 s"):
        audit(server, tmp_path / "j")


def test_failures_are_observations_and_not_agreement(tmp_path: Path) -> None:
    with stub(every(4, Answer("no", status=400))) as server:
        ran = audit(server, tmp_path / "j")
    failed = [o for o in ran.observations if o.failed]
    assert {o.error for o in failed} == {"HTTP 400 stub_400"}
    assert len(failed) == 4
    assert {o.text for o in failed} == {None}
    assert ran.measured.progress.details == {"HTTP 400 stub_400": "no"}


def test_a_closed_connection_is_tried_again_and_a_broken_answer_is_not(tmp_path: Path) -> None:
    with stub(every(6, Answer(drop="before"))) as server:
        ran = audit(server, tmp_path / "j")
    assert not any(o.failed for o in ran.observations)
    assert max(o.attempts for o in ran.observations) == 2
    for streaming in ("off", "on"):
        with stub(every(6, Answer("yes it is", drop="within"))) as server:
            ran = audit(server, tmp_path / f"k-{streaming}", streaming=(streaming,))
        assert 0 < sum(o.failed for o in ran.observations) < 16
        assert {o.attempts for o in ran.observations} == {1}, "it may have been paid"


def test_an_answer_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    with stub(every(8, Answer(delay=FOREVER))) as server:
        ran = audit(server, tmp_path / "j", count=2, timeout=3)
    assert [o.error for o in ran.observations if o.failed] == ["no answer within 3 s"]


def test_a_dead_target_ends_the_audit(tmp_path: Path) -> None:
    def dies(incoming: Incoming) -> Answer:
        return Answer("no", status=400 if incoming.number > 3 else 200)

    with stub(dies) as server, pytest.raises(MeasurementError, match="20 requests in a row"):
        audit(server, tmp_path / "j", runs=20)
    assert len(list(read_journal(tmp_path / "j"))) == 23


# ---- going on --------------------------------------------------------------------------------------------------------


def interrupted(path: Path, after: int) -> Stub:
    """A server, and an audit against it that was stopped when four requests waited for an answer."""
    server = Stub(lambda incoming: Answer("yes", delay=0.005 if incoming.number < after else FOREVER))
    with pytest.raises(asyncio.CancelledError):
        audit(server, path, concurrency=(4,), until=lambda: len(server.requests) == after + 4)
    return server


@pytest.mark.parametrize("resend", [False, True])
def test_an_interrupted_audit_goes_on_where_it_was(tmp_path: Path, resend: bool) -> None:
    server = interrupted(tmp_path / "j", after=8)
    before = len(server.asked)
    server.model = yes
    ran = audit(server, tmp_path / "j", concurrency=(4,), resend=resend)
    server.close()
    assert len(ran.observations) == 16
    assert len({(o.prompt_id, o.run) for o in ran.observations}) == 16
    lost = [o for o in ran.observations if o.error == LOST]
    assert len(lost) == (0 if resend else 4)
    # No probe, nothing of what had an outcome, and what had none only when asked for.
    assert len(server.asked) - before == 16 - 7 - (0 if resend else 4)


def test_a_finished_audit_sends_nothing(tmp_path: Path) -> None:
    with stub(yes) as server:
        audit(server, tmp_path / "j")
        before = len(server.asked)
        ran = audit(server, tmp_path / "j")
        assert len(server.asked) == before
    assert len(ran.observations) == 16
