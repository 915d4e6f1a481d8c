"""Token ids, text, streams. M02: golden ids. M07: one BOS. A04: no half characters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from samebits.errors import InputError, ModelError
from samebits.models import ModelSource, Tokenizer, load_source
from samebits.models.tokenizer import LONG_TEXT

Write = Callable[..., Path]

# Computed by a separate implementation (textbook BPE on the merges, single digits, GPT-2's pattern by the
# regex package), which agreed on these and on 2,000 random strings.
GOLDEN = {
    "3.14%, 2,000": [35, 30, 33, 36, 9812, 216, 34, 28, 32, 32, 32],
    " leading": [2899],
    "\ttab\t\tx  y ": [197, 15999, 197, 197, 104, 216, 329, 216],
    "naïve café": [3546, 46494, 37366],
    "👩\u200d💻🇹🇼": [10813, 235, 119, 321, 231, 10813, 236, 136, 10813, 225, 134, 10813, 225, 137],
    "漢字かな": [177, 137, 112, 36518, 7365, 229, 7365, 120],
    "1234567890123": [33, 34, 35, 36, 37, 38, 39, 40, 41, 32, 33, 34, 35],
    "<|im_start|>u\nhi<|im_end|>": [1, 101, 198, 6004, 2],
    "I'll we've DON'T": [57, 3060, 392, 3543, 422, 2154, 23, 68],
    "a\n\n\nb": [81, 1116, 198, 82],
    "  \n ": [256, 3805],
    "½ ² Ⅷ ١٢٣": [16738, 216, 19133, 216, 173, 223, 117, 216, 164, 111, 164, 112, 164, 113],
    "é e\u0301": [2756, 297, 151, 219],
    "": [],
}


@pytest.mark.parametrize("text", GOLDEN)
def test_golden_ids(smollm2: ModelSource, text: str) -> None:
    assert smollm2.tokenizer.encode(text) == GOLDEN[text]


@pytest.fixture
def tokenizer(write_gguf: Write) -> Tokenizer:
    return load_source(write_gguf()).tokenizer


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.push(i) for i in ids), stream.finish()]


def test_any_text_survives(smollm2: ModelSource) -> None:
    tokenizer = smollm2.tokenizer
    spelled = {b for i in range(tokenizer.vocab_size) if len(b := tokenizer.token_bytes(i)) == 1}
    assert len(spelled) == 256 - 21  # the vocabulary has no token for some control characters and planes

    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
    def check(text: str) -> None:
        assume(all(bytes([b]) in spelled for b in text.encode()))
        ids = tokenizer.encode(text)
        if not tokenizer.special_ids & set(ids):
            assert tokenizer.decode(ids) == text
            pieces = streamed(tokenizer, ids)
            assert "".join(pieces) == text
            assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text
            assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()

    check()


def test_any_ids_stream_as_they_decode(smollm2: ModelSource) -> None:
    tokenizer = smollm2.tokenizer

    @given(st.lists(st.one_of(st.integers(0, 49151), st.integers(100, 272)), max_size=30))
    def check(ids: list[int]) -> None:
        assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)

    check()


def test_an_output_cut_inside_a_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a😀", add_special=False)
    assert len(ids) == 5
    assert streamed(tokenizer, ids) == ["a", "", "", "", "😀", ""]
    assert streamed(tokenizer, ids[:-1]) == ["a", "", "", "", "\ufffd"]
    assert tokenizer.decode(ids[:-1]) == "a\ufffd"


def test_special_tokens(tokenizer: Tokenizer, tiny: SimpleNamespace) -> None:
    assert tokenizer.encode("hello<eos>") == [tiny.bos, tiny.tokens.index("hello"), tiny.eos]
    assert tokenizer.decode([tiny.bos, tiny.tokens.index("hello"), tiny.eos]) == "hello"
    assert tokenizer.token_bytes(tiny.eos) == b"<eos>"
    assert tokenizer.token_bytes(10**6) == tokenizer.token_bytes(-1) == b""
    assert tokenizer.eos_ids == (tiny.eos, tiny.eot)
    assert tokenizer.special_ids == {tiny.bos, tiny.eos, tiny.eot}
    assert tokenizer.vocab_size == len(tiny.tokens)


def test_bos_is_there_once_on_both_routes(tokenizer: Tokenizer, tiny: SimpleNamespace) -> None:
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}])
    chat = tokenizer.encode(rendered, add_special=False)
    assert chat.count(tiny.bos) == 1
    assert chat[0] == tiny.bos
    assert tokenizer.encode("hello").count(tiny.bos) == 1
    assert tokenizer.prompt_warnings(chat) == ()
    doubled = tokenizer.encode(rendered)
    assert doubled[:2] == [tiny.bos, tiny.bos]
    assert "two BOS" in tokenizer.prompt_warnings(doubled)[0]


def test_bos_only_where_the_file_says(write_gguf: Write, tiny: SimpleNamespace) -> None:
    assert load_source(write_gguf({"tokenizer.ggml.add_bos_token": False})).tokenizer.encode("h") == [
        tiny.tokens.index("h")
    ]
    assert load_source(write_gguf({"tokenizer.ggml.add_bos_token": None})).tokenizer.encode("") == []


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["1234"]),
        ("smollm", ["1", "2", "3", "4"]),
        ("qwen2", ["1", "2", "3", "4"]),
        ("tekken", ["1", "2", "3", "4"]),
        ("llama-bpe", ["123", "4"]),
    ],
)
def test_each_pre_tokenizer_cuts_its_own_way(
    write_gguf: Write, tiny: SimpleNamespace, pre: str, pieces: list[str]
) -> None:
    tokenizer = load_source(write_gguf({"tokenizer.ggml.pre": pre})).tokenizer
    ids = tokenizer.encode("1234", add_special=False)
    assert [tiny.tokens[i] for i in ids] == pieces
    text = "He said:\r\n  'It's  漢字 ÉCOLE'\t½"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.pre": "falcon"}, "pre is 'falcon'; supported: gpt-2"),
        ({"tokenizer.ggml.pre": None}, "pre is None"),
        ({"tokenizer.ggml.model": "bert"}, "model is 'bert'"),
        ({"tokenizer.ggml.merges": ["h zz"]}, "merges does not fit"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "token_type does not have"),
        ({"tokenizer.ggml.bos_token_id": 10**6}, "bos_token_id is 1000000"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "names a token twice"),
        ({"tokenizer.ggml.add_eos_token": True}, "add_eos_token is true"),
    ],
)
def test_other_tokenizers_are_refused(write_gguf: Write, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_source(write_gguf(changes))


def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="prompt: character 1 is a lone surrogate"):
        tokenizer.encode("a\ud83d")


def test_sentence_piece(write_gguf: Write, tiny: SimpleNamespace) -> None:
    pieces = ["▁", "h", "e", "l", "o", "he", "ll", "▁he", "▁hell", "▁hello"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    tokens += [f"[PAD{i}]" for i in range(len(tiny.tokens) - len(tokens))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    kinds += [5] * (len(tokens) - len(kinds))
    assert len(tokens) == len(tiny.tokens)
    changes = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [float(-i) for i in range(len(tokens))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": None,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    tokenizer = load_source(write_gguf(changes)).tokenizer

    def names(text: str) -> list[str]:
        return [tokens[i] for i in tokenizer.encode(text)]

    assert names("hello") == ["<s>", "▁hello"]
    assert names("hello é") == ["<s>", "▁hello", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("hello é\n")) == " hello é\n"
    ids = tokenizer.encode("😀")
    assert "".join(streamed(tokenizer, ids)) == " 😀"
    bare = load_source(write_gguf(changes | {"tokenizer.ggml.add_space_prefix": False})).tokenizer
    assert bare.decode(bare.encode("hello")) == "hello"


def test_digest_follows_the_content(write_gguf: Write, tiny: SimpleNamespace) -> None:
    digests = [
        load_source(write_gguf(changes)).tokenizer.digest
        for changes in ({}, {}, {"tokenizer.ggml.pre": "smollm"}, {"tokenizer.ggml.eot_token_id": None})
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


# ---- long texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [LONG_TEXT - 1, LONG_TEXT, LONG_TEXT + 1, 3 * LONG_TEXT])
@pytest.mark.parametrize("add_special", [False, True])
def test_a_long_text_has_the_ids_of_the_plain_call(smollm2: ModelSource, length: int, add_special: bool) -> None:
    text = ("The <|im_start|> river 12, é漢👩\u200d💻\n" * length)[:length]
    tokenizer = smollm2.tokenizer
    assert tokenizer.encode(text, add_special) == tokenizer._backend.encode(text, add_special_tokens=add_special).ids


def longest_silence(work: Callable[[], object]) -> float:
    """In how much of the work another thread could do nothing, at the longest: a share of the processors' time, which
    does not pass while this process waits for its turn.
    """
    ticks: list[float] = []
    done, begun = threading.Event(), threading.Event()

    def tick() -> None:
        while not done.wait(0.0005):
            ticks.append(time.process_time())
            begun.set()

    other = threading.Thread(target=tick)
    other.start()
    begun.wait()
    begin = time.process_time()
    work()
    end = time.process_time()
    done.set()
    other.join()
    moments = [begin, *(moment for moment in ticks if begin < moment < end), end]
    return max(b - a for a, b in pairwise(moments)) / (end - begin)


def test_others_run_while_a_long_text_is_encoded(smollm2: ModelSource) -> None:
    text = "The river, a day 12 " * 40_000
    assert longest_silence(lambda: smollm2.tokenizer.encode(text)) < 0.5


def test_control_the_plain_call_lets_nobody_run(smollm2: ModelSource) -> None:
    text = "The river, a day 12 " * 40_000
    assert longest_silence(lambda: smollm2.tokenizer._backend.encode(text)) > 0.5
