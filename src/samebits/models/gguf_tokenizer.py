"""A tokenizer from the metadata of a GGUF file.

GGUF names the way text is cut (``tokenizer.ggml.pre``) but does not hold it; the rules here are those of the
tokenizer.json files the names stand for. A name without a rule here is refused: another rule would give other ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from samebits.errors import shown
from samebits.models.chat_template import ChatTemplate
from samebits.models.fields import Fields
from samebits.models.tokenizer import SpecialTokens, Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # token types that matter here

_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL
_QWEN2: Final = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _TAIL
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _TAIL
)


@dataclass(frozen=True)
class _Cut:
    """How a byte-level vocabulary cuts text before merging.

    Attributes:
        pattern: the pieces, or None for GPT-2's own pattern.
        single_digits: each digit is a piece, before GPT-2's pattern applies.
        whole_words: a piece that is a token is taken as it is, whatever the merges would give.
        nfc: text is normalised to NFC first.
        adds_bos: BOS is added where the file does not say.
    """

    pattern: str | None = None
    single_digits: bool = False
    whole_words: bool = False
    nfc: bool = False
    adds_bos: bool = False


_LLAMA3_CUT: Final = _Cut(_LLAMA3, whole_words=True, adds_bos=True)
_CUTS: Final[Mapping[str, _Cut]] = {
    "gpt-2": _Cut(),
    "smollm": _Cut(single_digits=True),
    "llama-bpe": _LLAMA3_CUT,
    "llama-v3": _LLAMA3_CUT,
    "llama3": _LLAMA3_CUT,
    "qwen2": _Cut(_QWEN2, nfc=True),
    "tekken": _Cut(_TEKKEN, whole_words=True, adds_bos=True),
}


def tokenizer_from_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
    """Build the tokenizer that GGUF metadata describes.

    Args:
        where: the file, for messages.

    Raises:
        ModelError: a key is missing or inconsistent, or the kind of tokenizer is not supported.
    """
    prefix = "tokenizer.ggml."
    raw = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    vocabulary = _Vocabulary(Fields(raw, where, prefix))
    model = raw.get("model")
    if model == "gpt2":
        backend, adds_bos = _byte_level(vocabulary)
    elif model == "llama":
        backend, adds_bos = _sentence_piece(vocabulary), True
    else:
        vocabulary.fields.fail("model", f"is {shown(model)}; gpt2 and llama are supported")
    _add_tokens(backend, vocabulary)
    special = _special_tokens(vocabulary)
    if vocabulary.fields.boolean("add_eos_token", default=False):
        vocabulary.fields.fail("add_eos_token", "is true: it would end every prompt, which is not supported")
    if vocabulary.fields.boolean("add_bos_token", default=adds_bos) and special.bos_id is not None:
        bos = special.texts["bos_token"]
        backend.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", "$B"], special_tokens=[(bos, special.bos_id)]
        )
    template = Fields(metadata, where).optional_text("tokenizer.chat_template")
    return Tokenizer(backend, special, None if template is None else ChatTemplate(template, where), where)


class _Vocabulary:
    """The token lists of the metadata, checked.

    Attributes:
        tokens: text of each id.
        ids: id of each text.
        types: GGUF's token type of each id.
    """

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.tokens = self.strings("tokens")
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if not self.tokens or len(self.ids) != len(self.tokens):
            fields.fail("tokens", "is empty or names a token twice")
        self.types = self.numbers("token_type")

    def strings(self, key: str) -> list[str]:
        value = self.fields.raw.get(key)
        if not isinstance(value, list):
            self.fields.fail(key, "is missing or not a list of strings")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """One number for each token."""
        value = self.fields.raw.get(key)
        if not isinstance(value, tuple) or len(value) != len(self.tokens):
            self.fields.fail(key, f"does not have one number for each of {len(self.tokens)} tokens")
        return value

    def token_id(self, key: str) -> int | None:
        """The id that a key names; None where the file has no such key."""
        value = self.fields.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            self.fields.fail(key, f"is {shown(value)}, not the id of a token")
        return value


def _byte_level(vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """A GPT-2 style tokenizer, and whether it adds BOS unless told."""
    fields = vocabulary.fields
    name = fields.raw.get("pre")
    cut = _CUTS.get(name) if isinstance(name, str) else None
    if cut is None:
        fields.fail("pre", f"is {shown(name)}; supported: {', '.join(_CUTS)}")
    merges: list[tuple[str, str]] = []
    for merge in vocabulary.strings("merges"):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    backend = _bpe(vocabulary, merges, ignore_merges=cut.whole_words)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut.pattern is None)
    first: list[Any] = []
    if cut.single_digits:
        first = [pre_tokenizers.Digits(individual_digits=True)]
    elif cut.pattern is not None:
        first = [pre_tokenizers.Split(Regex(cut.pattern), behavior="isolated")]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*first, byte_level])
    backend.decoder = decoders.ByteLevel()
    if cut.nfc:
        backend.normalizer = normalizers.NFC()
    return backend, cut.adds_bos


def _sentence_piece(vocabulary: _Vocabulary) -> tokenizers.Tokenizer:
    """A Llama 1/2 style tokenizer. SentencePiece joins the pair whose piece has the best score; BPE merges in
    rank order do the same when ranks follow the scores.
    """
    fields = vocabulary.fields
    scores = vocabulary.numbers("scores")
    normal = {t: i for t, i in vocabulary.ids.items() if vocabulary.types[i] == _NORMAL}
    ranked = [
        (-scores[i], normal[left], normal[right], left, right)
        for token, i in normal.items()
        for cut in range(1, len(token))
        if (left := token[:cut]) in normal and (right := token[cut:]) in normal
    ]
    unknown = vocabulary.token_id("unknown_token_id")
    backend = _bpe(
        vocabulary,
        [(left, right) for *_, left, right in sorted(ranked)],
        unk_token=vocabulary.tokens[unknown or 0],
        fuse_unk=True,
        byte_fallback=True,
    )
    spaces: list[Any] = [normalizers.Replace(" ", "▁")]
    if fields.boolean("add_space_prefix", default=True):
        spaces.insert(0, normalizers.Prepend("▁"))
    backend.normalizer = normalizers.Sequence(spaces)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


def _bpe(vocabulary: _Vocabulary, merges: Sequence[tuple[str, str]], **options: Any) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer(models.BPE(vocab=vocabulary.ids, merges=list(merges), **options))
    except Exception as error:  # the library raises bare Exception for a merge outside the vocabulary
        vocabulary.fields.fail("merges", f"does not fit the vocabulary: {error}")


def _add_tokens(backend: tokenizers.Tokenizer, vocabulary: _Vocabulary) -> None:
    """Make control tokens special, and user-defined tokens unbreakable."""
    for special, types in ((True, (_CONTROL, _UNKNOWN)), (False, (_USER_DEFINED,))):
        backend.add_tokens(
            [
                AddedToken(token, normalized=False, special=special)
                for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
                if kind in types
            ]
        )


def _special_tokens(vocabulary: _Vocabulary) -> SpecialTokens:
    roles = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "unk_token": "unknown_token_id",
        "pad_token": "padding_token_id",
    }
    ids = {role: vocabulary.token_id(key) for role, key in roles.items()}
    # End of sequence, of turn and of message: models that tell them apart stop at any of them.
    ends = {vocabulary.token_id(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")} - {None}
    return SpecialTokens(
        bos_id=ids["bos_token"],
        eos_ids=tuple(sorted(i for i in ends if i is not None)),
        texts={role: vocabulary.tokens[i] for role, i in ids.items() if i is not None},
    )
