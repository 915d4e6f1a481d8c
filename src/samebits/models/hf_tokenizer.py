"""A tokenizer from a Hugging Face folder: tokenizer.json, tokenizer_config.json, chat_template.jinja."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tokenizers

from samebits.errors import ModelError, shown
from samebits.models.chat_template import ChatTemplate
from samebits.models.fields import Fields, read_json_object
from samebits.models.generation_defaults import token_ids
from samebits.models.tokenizer import SpecialTokens, Tokenizer

_ROLES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


def tokenizer_from_folder(folder: Path, config: Mapping[str, Any], generation_eos: tuple[int, ...]) -> Tokenizer:
    """Read the tokenizer of a model folder. BOS is added as the post-processor of tokenizer.json says.

    An output ends at the eos_token of tokenizer_config.json and at the ids of generation_config.json;
    config.json answers where neither does.

    Args:
        config: content of config.json.
        generation_eos: ids that generation_config.json lists.

    Raises:
        ModelError: a file is missing or damaged, or the kind of tokenizer is not supported.
    """
    path = folder / "tokenizer.json"
    try:
        backend = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except OSError as error:
        raise ModelError(
            f"cannot be read ({error.strerror})", field=str(path), remedy="Download the whole model folder."
        ) from error
    except Exception as error:  # the library raises bare Exception for whatever it cannot parse
        raise ModelError(f"is not a tokenizer: {error}", field=str(path), remedy="Download the file again.") from error
    settings_path = folder / "tokenizer_config.json"
    settings = read_json_object(settings_path) if settings_path.exists() else {}
    texts = {role: text for role in _ROLES if (text := _text(settings, role, str(settings_path))) is not None}
    config_path = folder / "config.json"
    if "eos_token" in texts and backend.token_to_id(texts["eos_token"]) is None:  # no output would end at it
        raise ModelError(
            f"eos_token is {shown(texts['eos_token'])}, which tokenizer.json does not have",
            field=str(settings_path),
            remedy="Use the two files that belong together.",
        )
    ends = {*generation_eos, *_ids(backend, texts, "eos_token")}
    starts = _ids(backend, texts, "bos_token") or token_ids(config.get("bos_token_id"), "bos_token_id", config_path)
    special = SpecialTokens(
        bos_id=starts[0] if starts else None,
        eos_ids=tuple(sorted(ends or token_ids(config.get("eos_token_id"), "eos_token_id", config_path))),
        texts=texts,
    )
    return Tokenizer(backend, special, _template(folder, settings, settings_path), str(path))


def _text(settings: Mapping[str, Any], role: str, where: str) -> str | None:
    """The text of a special token, given as a string or as an object with ``content``."""
    token = settings.get(role)
    if isinstance(token, Mapping):
        return Fields(token, where, prefix=f"{role}.").optional_text("content")
    return Fields(settings, where).optional_text(role)


def _ids(backend: tokenizers.Tokenizer, texts: Mapping[str, str], role: str) -> tuple[int, ...]:
    token_id = backend.token_to_id(texts[role]) if role in texts else None
    return () if token_id is None else (token_id,)


def _template(folder: Path, settings: Mapping[str, Any], settings_path: Path) -> ChatTemplate | None:
    """The file chat_template.jinja, else the one of tokenizer_config.json: text, or the one named
    ``default``.
    """
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return ChatTemplate(path.read_text("utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError("is not UTF-8 text", field=str(path), remedy="Download the file again.") from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, Mapping) and entry.get("name") == "default"]
        template = named[0].get("template") if named else None
    source = Fields({"chat_template": template}, str(settings_path)).optional_text("chat_template")
    return None if source is None else ChatTemplate(source, str(settings_path))
