"""The pool against a plain model of it, under random use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from samebits.engine.pages import ROOT, PagePool, page_digest

PAGES = 7


class PoolMachine(RuleBasedStateMachine):
    """Sequences that take, share, register and give back pages; what each page holds is written down here."""

    pool_class: type[PagePool] = PagePool

    def __init__(self) -> None:
        super().__init__()
        self.pool = self.pool_class(PAGES, prefix_cache=True)
        self.holders: list[list[int]] = []  # pages of each sequence
        self.chains: list[list[bytes]] = []  # digests of each sequence's registered pages
        self.content: dict[int, bytes] = {}

    @rule()
    def begin(self) -> None:
        self.holders.append([])
        self.chains.append([])

    @precondition(lambda self: self.holders and self.pool.available)
    @rule(data=st.data(), token=st.integers(0, 1), full=st.booleans())
    def extend(self, data: st.DataObject, token: int, full: bool) -> None:
        i = data.draw(st.integers(0, len(self.holders) - 1))
        if len(self.chains[i]) < len(self.holders[i]):
            return  # its last page is not full
        page = self.pool.allocate()
        assert all(page not in pages for pages in self.holders), "a held page was given out"
        self.holders[i].append(page)
        self.content.pop(page, None)
        if full:
            digest = page_digest(self.chains[i][-1] if self.chains[i] else ROOT, [token])
            self.chains[i].append(digest)
            self.content[page] = digest
            self.pool.register(page, digest)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), length=st.integers(0, 5))
    def reuse(self, data: st.DataObject, length: int) -> None:
        source = data.draw(st.integers(0, len(self.chains) - 1))
        digests = self.chains[source][:length]
        found = self.pool.find(digests)
        assert len(found) <= len(digests)
        for page, digest in zip(found, digests, strict=False):
            assert self.content[page] == digest, "the page found holds something else"
        self.pool.share(found)
        self.holders.append(list(found))
        self.chains.append(digests[: len(found)])

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        i = data.draw(st.integers(0, len(self.holders) - 1))
        self.pool.release(self.holders.pop(i))
        self.chains.pop(i)

    @invariant()
    def sound(self) -> None:
        self.pool.check()
        assert self.pool.held == len({page for pages in self.holders for page in pages})
        assert self.pool.held + self.pool.available == self.pool.size == PAGES


def run(kind: type[PoolMachine], **options: Any) -> None:
    options = {"max_examples": 150, "stateful_step_count": 40} | options
    run_state_machine_as_test(kind, settings=settings(**options))


def test_the_pool_under_random_use() -> None:
    run(PoolMachine)


class ForgetsToCount(PagePool):
    def share(self, pages: Any) -> None:
        for page in pages:
            self._kept.pop(page, None)
            self._references[page] = 1


class RemembersGivenUp(PagePool):
    def _forget(self, page: int) -> None:
        self._digest_of[page] = None


class LosesAPage(PagePool):
    def release(self, pages: Any) -> None:
        super().release(pages[1:])


@pytest.mark.parametrize("pool", [ForgetsToCount, RemembersGivenUp, LosesAPage])
def test_control_a_faulty_pool_is_seen(pool: type[PagePool]) -> None:
    class Faulty(PoolMachine):
        pool_class = pool

    with pytest.raises((AssertionError, KeyError)):
        run(Faulty, derandomize=True, database=None, phases=[Phase.generate], report_multiple_bugs=False)


def test_least_recently_used_is_given_up_first_and_the_last_page_of_a_sequence_before_the_first() -> None:
    pool = PagePool(4, prefix_cache=True)
    first, second = [pool.allocate() for _ in range(2)], [pool.allocate() for _ in range(2)]
    chains = []
    for pages, tokens in ((first, (1, 2)), (second, (3, 4))):
        chain = [page_digest(ROOT, tokens[:1])]
        chain.append(page_digest(chain[0], tokens[1:]))
        for page, digest in zip(pages, chain, strict=True):
            pool.register(page, digest)
        chains.append(chain)
    pool.release(second)
    pool.release(first)
    assert pool.available == 4
    assert pool.find(chains[1]) == second
    assert pool.allocate() == second[1]
    assert pool.find(chains[1]) == second[:1]
    assert pool.allocate() == second[0]
    assert pool.find(chains[1]) == []
    assert pool.find(chains[0]) == first
    pool.share(first)
    assert pool.available == 0


def test_equal_content_is_found_once_and_the_other_page_is_free_at_once() -> None:
    pool = PagePool(2, prefix_cache=True)
    a, b = pool.allocate(), pool.allocate()
    digest = page_digest(ROOT, [1])
    pool.register(a, digest)
    pool.register(b, digest)
    assert pool.find([digest]) == [a]
    pool.release([b])
    pool.release([a])
    assert pool.allocate() == b
    assert pool.find([digest]) == [a]


def test_without_prefix_cache_nothing_is_found() -> None:
    pool = PagePool(1, prefix_cache=False)
    page, digest = pool.allocate(), page_digest(ROOT, [1])
    pool.register(page, digest)
    assert pool.find([digest]) == []
    pool.release([page])
    pool.check()


def test_a_double_release_is_a_bug_that_shows() -> None:
    pool = PagePool(1, prefix_cache=True)
    page = pool.allocate()
    pool.release([page])
    with pytest.raises(AssertionError, match="page 0 released twice"):
        pool.release([page])


def test_a_digest_covers_all_before_it_and_the_width_of_ids() -> None:
    assert page_digest(ROOT, [1, 2]) == page_digest(ROOT, np.array([1, 2], np.int64).tolist())
    seen = {page_digest(ROOT, t) for t in ([1], [2], [1, 2], [2, 1], [1, 0], [256], [])}
    seen |= {page_digest(page_digest(ROOT, [9]), t) for t in ([1], [1, 2])}
    assert len(seen) == 9
