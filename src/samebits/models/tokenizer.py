"""Text to token ids and back, on the `tokenizers` library.

Decoding is by bytes: each id stands for fixed bytes, and text is their concatenation read as UTF-8. So a stream of
pieces equals the text of the whole, the bytes of single tokens add up to the text, and a character cut by the end of
the output is the only source of U+FFFD besides ids that are no UTF-8 in themselves. Consequence: a SentencePiece
model's space before a first word is kept, as in the text that follows a prompt.
"""

from __future__ import annotations

import codecs
import datetime
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import tokenizers

from samebits.errors import InputError, ModelError
from samebits.models.chat_template import DEFAULT_DATE, ChatTemplate
from samebits.models.tool_calls import Dialect, digest_of_text_form
from samebits.numerics import digest_bytes, digest_json

_BYTE_TOKEN: Final = re.compile("<0x([0-9A-F]{2})>")
_SPACE_MARK: Final = "▁"
LONG_TEXT: Final = 4_000  # characters, about a millisecond of work


@dataclass(frozen=True)
class SpecialTokens:
    """Tokens with a role.

    Attributes:
        bos_id: begins a text; None where the model has none.
        eos_ids: any of these ends an output; sorted.
        texts: by the name a chat template knows them by (``bos_token``, ``eos_token``, …).
    """

    bos_id: int | None
    eos_ids: tuple[int, ...]
    texts: Mapping[str, str]


class Tokenizer:
    """A model's tokenizer and chat template.

    Attributes:
        bos_id, eos_ids: see SpecialTokens.
        special_ids: ids that are no text; ``decode`` leaves them out.
        vocab_size: number of tokens, special ones included. The model may have rows beyond it that stand for
            nothing.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, special: SpecialTokens, template: ChatTemplate | None, where: str
    ) -> None:
        """Wraps ``backend``, whose truncation and padding are turned off.

        Args:
            where: the file it came from, for messages.

        Raises:
            ModelError: the tokenizer turns tokens into text by rules other than byte-level BPE or
                SentencePiece.
        """
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._special = special
        self._template = template
        self._byte_level = _is_byte_level(backend, where)
        added = backend.get_added_tokens_decoder()
        self._added = {i: token.content for i, token in added.items()}
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.bos_id = special.bos_id
        self.eos_ids = special.eos_ids
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self._bytes: dict[int, bytes] = {}

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Token ids of a text. The text of a special token in it becomes that token.

        A byte-level vocabulary may lack a token for some bytes (SmolLM2's lacks 21, of control characters and
        unused planes). Other implementations drop such bytes silently; here they are refused.

        Args:
            add_special: add what the model puts around a text, such as BOS. False for a rendered chat
                template, which holds its own. A text that begins with BOS and has it added has two: see
                ``prompt_warnings``.

        Raises:
            InputError: the text has lone surrogates and so is not Unicode, or a byte that has no token.
        """
        try:
            content = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"character {error.start} is a lone surrogate, not Unicode text",
                field="prompt",
                remedy="Decode the text with the right encoding.",
            ) from error
        missing = self._missing_bytes.intersection(content)
        if missing:
            character = next(c for c in text if missing.intersection(c.encode()))
            raise InputError(
                f"the model's vocabulary has no token for a byte of {character!a}",
                field="prompt",
                remedy="Remove that character.",
            )
        if len(text) <= LONG_TEXT:
            return self._backend.encode(text, add_special_tokens=add_special).ids
        # The same ids; but the library lets other threads run meanwhile, which `encode` does not.
        [encoding] = self._backend.encode_batch_fast([text], add_special_tokens=add_special)
        return encoding.ids

    @cached_property
    def _missing_bytes(self) -> frozenset[int]:
        if not self._byte_level:
            return frozenset()
        return frozenset(b for b, c in enumerate(byte_alphabet()) if self._backend.token_to_id(c) is None)

    def prompt_warnings(self, ids: Sequence[int]) -> tuple[str, ...]:
        """What is suspicious about a prompt's ids, in words. The ids are never changed."""
        if self.bos_id is None or list(ids[:2]) != [self.bos_id, self.bos_id]:
            return ()
        return (
            f"the prompt begins with two BOS tokens ({self.bos_id}): a text that holds BOS, such as a "
            "rendered chat template, is to be encoded without special tokens",
        )

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens."""
        return b"".join(map(self._text_bytes, ids)).decode("utf-8", "replace")

    def stream(self, shown: Collection[int] = ()) -> TextStream:
        """A decoder that takes one id at a time.

        Args:
            shown: ids of special tokens that are text nevertheless, such as one that announces a tool call.
        """
        return TextStream(self, shown)

    def special_id(self, text: str) -> int | None:
        """The id of the special token of that name; None where there is none."""
        token_id = self._backend.token_to_id(text)
        return token_id if token_id in self.special_ids else None

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one id stands for, the name of a special token included; empty for an id without a
        token.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._find_bytes(token_id)
        return known

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        date: datetime.date = DEFAULT_DATE,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt text of a conversation, to be encoded with ``add_special=False``.

        Args:
            messages: each has ``role`` and ``content``, both text. The assistant's can have ``tool_calls`` (then
                content may be None), each with ``function.name`` and ``function.arguments``, an object; a result is a
                message of the role ``tool``, with ``tool_call_id`` and ``name`` where the template wants them.
            date: what the template takes for today.
            tools: descriptions as in OpenAI's API. They stand in the prompt in the order given, keys too; see
                ``with_tools_in_text`` for a template that knows no tools.
            add_generation_prompt: end with the opening of the assistant's turn.

        Raises:
            InputError: the model has no template, a message is malformed, or the template refuses the
                conversation.
        """
        if self._template is None:
            raise InputError(
                "the model has no chat template",
                field="messages",
                remedy="Use an instruction-tuned model, or send a plain prompt.",
            )
        return self._template.render(
            messages,
            special_tokens=self._special.texts,
            date=date,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
        )

    @property
    def tool_dialect(self) -> Dialect | None:
        """The form in which the model is to write tool calls; None without a template, or where it is not known."""
        return None if self._template is None else self._template.tool_dialect

    @cached_property
    def digest(self) -> str:
        """Digest of the vocabulary and every rule, the special ids, and the library with its version."""
        return digest_json(
            {
                "library": f"tokenizers {tokenizers.__version__}",
                "content": digest_bytes(self._backend.to_str().encode()),
                "bos_id": self.bos_id,
                "eos_ids": self.eos_ids,
            }
        )

    @cached_property
    def template_digest(self) -> str:
        """Digest of the chat template, the texts of special tokens it can use, and the form of tools if it has none."""
        content: dict[str, Any] = {"template": None, "special_tokens": self._special.texts}
        if self._template is not None:
            content["template"] = self._template.source
            if not self._template.takes_tools:
                content["tools"] = digest_of_text_form()
        return digest_json(content)

    def _text_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self.special_ids else self.token_bytes(token_id)

    def _find_bytes(self, token_id: int) -> bytes:
        if self._byte_level and token_id in self._added:  # stored as it reads, not in the byte alphabet
            return self._added[token_id].encode()
        token = self._backend.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            return b""
        if self._byte_level:
            try:
                return bytes(_BYTE_OF[character] for character in token)
            except KeyError:
                return token.encode()
        if byte := _BYTE_TOKEN.fullmatch(token):
            return bytes.fromhex(byte[1])
        return token.replace(_SPACE_MARK, " ").encode()


class TextStream:
    """Text of ids as they come. The pieces, with that of ``finish``, add up to ``Tokenizer.decode`` of all
    ids.
    """

    def __init__(self, tokenizer: Tokenizer, shown: Collection[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._shown = frozenset(shown)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The characters that this id completes; empty inside a character."""
        if token_id in self._shown:
            return self._utf8.decode(self._tokenizer.token_bytes(token_id))
        return self._utf8.decode(self._tokenizer._text_bytes(token_id))

    def finish(self) -> str:
        """U+FFFD where the ids end inside a character, else nothing."""
        return self._utf8.decode(b"", final=True)


def _is_byte_level(backend: tokenizers.Tokenizer, where: str) -> bool:
    """Whether tokens are in GPT-2's byte alphabet; otherwise they are SentencePiece pieces."""
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
    kinds = {part["type"] for part in state.get("decoders", [state]) if part}
    if "ByteLevel" in kinds:
        return True
    if kinds & {"ByteFallback", "Metaspace"}:
        return False
    raise ModelError(
        f"has a decoder of {sorted(kinds) or 'no kind'}; byte-level and SentencePiece are supported",
        field=where,
        remedy="Use a Llama-family tokenizer.",
    )


def byte_alphabet() -> str:
    """GPT-2's alphabet: the character for each byte. Printable Latin-1 stands for itself; the other bytes,
    ascending, for U+0100 and up.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


_BYTE_OF: Final = {character: byte for byte, character in enumerate(byte_alphabet())}
