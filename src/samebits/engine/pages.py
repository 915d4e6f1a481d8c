"""Pages of the KV cache: who holds them, and which can be reused by content.

A page is *held* (reference count > 0), *kept* (count 0, but its content can be found by digest; the least recently
used is given up first) or *free*. Content is found by a chain: the digest of a full page covers all tokens before it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

ROOT = b""


def page_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Digest of a page's content given the digest of the page before it."""
    return hashlib.sha256(parent + np.asarray(token_ids, np.int32).tobytes()).digest()


class PagePool:
    """A fixed number of pages. Every ``allocate`` or ``share`` is paired with one ``release``."""

    def __init__(self, pages: int, *, prefix_cache: bool) -> None:
        self.size = pages
        self._prefix_cache = prefix_cache
        self._free = list(range(pages - 1, -1, -1))
        self._references = [0] * pages
        self._digest_of: list[bytes | None] = [None] * pages
        self._page_of: dict[bytes, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Pages that ``allocate`` can give: free and kept."""
        return len(self._free) + len(self._kept)

    @property
    def held(self) -> int:
        """Pages with a holder."""
        return self.size - self.available

    def allocate(self) -> int:
        """A page for one holder, its old content forgotten. Requires ``available`` > 0."""
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._kept.popitem(last=False)
            self._forget(page)
        self._references[page] = 1
        return page

    def release(self, pages: Sequence[int]) -> None:
        """Gives up one hold on each page; the last pages of a sequence are given up for reuse first."""
        for page in reversed(pages):
            self._references[page] -= 1
            assert self._references[page] >= 0, f"page {page} released twice"
            if self._references[page] == 0:
                if self._digest_of[page] is None:
                    self._free.append(page)
                else:
                    self._kept[page] = None

    def find(self, digests: Sequence[bytes]) -> list[int]:
        """The pages of the longest known prefix of a chain, without taking hold of them."""
        pages = []
        for digest in digests:
            page = self._page_of.get(digest)
            if page is None:
                break
            pages.append(page)
        return pages

    def count_held(self, pages: Sequence[int]) -> int:
        """How many of the pages have a holder, so that ``share`` takes nothing from ``available`` for them."""
        return sum(self._references[page] > 0 for page in pages)

    def share(self, pages: Sequence[int]) -> None:
        """Takes one more hold on pages that ``find`` returned."""
        for page in pages:
            self._kept.pop(page, None)
            self._references[page] += 1

    def register(self, page: int, digest: bytes) -> None:
        """Makes a full, held page findable; of two pages with equal content the first stays the one found."""
        if self._prefix_cache and digest not in self._page_of:
            self._page_of[digest] = page
            self._digest_of[page] = digest

    def flush(self) -> int:
        """Forgets the content of all pages that nobody holds; returns how many there were."""
        flushed = len(self._kept)
        for page in self._kept:
            self._forget(page)
            self._free.append(page)
        self._kept.clear()
        return flushed

    def _forget(self, page: int) -> None:
        digest = self._digest_of[page]
        if digest is not None:
            del self._page_of[digest]
            self._digest_of[page] = None

    def check(self) -> None:
        """Asserts that every page is in exactly one state."""
        free, kept = set(self._free), set(self._kept)
        assert len(free) == len(self._free), "a page is free twice"
        assert not free & kept, "a page is free and kept"
        for page, references in enumerate(self._references):
            assert (references == 0) == (page in free or page in kept), f"page {page} has {references} holders"
        for digest, page in self._page_of.items():
            assert self._digest_of[page] == digest, f"page {page} is found under another digest"
