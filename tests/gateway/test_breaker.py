"""The breaker, by a clock that the test turns."""

from __future__ import annotations

from samebits.gateway.breaker import Breaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_so_many_failures_in_a_row_and_tries_once() -> None:
    clock = Clock()
    breaker = Breaker(3, 10.0, clock)
    for _ in range(2):
        assert breaker.wait() == 0
        breaker.failed()
    breaker.succeeded()
    for _ in range(3):
        assert breaker.wait() == 0
        breaker.failed()
    assert breaker.is_open
    assert breaker.wait() == 10.0
    clock.now += 9.5
    assert breaker.wait() == 0.5
    clock.now += 0.5
    assert breaker.wait() == 0, "one may try"
    assert breaker.wait() > 0, "and only one"
    breaker.failed()
    assert breaker.wait() == 10.0, "the trial failed"
    clock.now += 10
    assert breaker.wait() == 0
    breaker.succeeded()
    assert not breaker.is_open
    assert [breaker.wait() for _ in range(3)] == [0, 0, 0]


def test_a_trial_that_we_give_up_says_nothing() -> None:
    clock = Clock()
    breaker = Breaker(1, 10.0, clock)
    breaker.failed()
    clock.now += 10
    assert breaker.wait() == 0
    breaker.abandoned()
    assert breaker.wait() == 0, "the place for a trial is free again"
