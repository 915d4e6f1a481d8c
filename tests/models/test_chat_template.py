"""Chat templates: golden text, pinned date, refusals."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samebits.errors import InputError, ModelError
from samebits.models import ChatTemplate, ModelSource, load_source

HI = [{"role": "user", "content": "Hi"}]


def render(source: str, messages: list[Any] = HI, **options: Any) -> str:
    settings: dict[str, Any] = {
        "special_tokens": {"bos_token": "<s>"},
        "date": datetime.date(2024, 7, 26),
        "add_generation_prompt": True,
    }
    return ChatTemplate(source, "template").render(messages, **(settings | options))


def test_smollm2_golden(smollm2: ModelSource) -> None:
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    expected = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert smollm2.tokenizer.apply_chat_template(HI, add_generation_prompt=False) == expected
    assert smollm2.tokenizer.apply_chat_template(HI) == expected + "<|im_start|>assistant\n"
    ids = smollm2.tokenizer.encode(expected, add_special=False)
    assert ids[:3] == [1, 9690, 198]
    assert ids.count(1) == 2
    own = [{"role": "system", "content": "Be brief."}, *HI]
    assert "SmolLM" not in smollm2.tokenizer.apply_chat_template(own)


def test_the_date_is_the_one_given() -> None:
    template = "{{ strftime_now('%d %b %Y %H:%M:%S') }}"
    assert render(template) == "26 Jul 2024 00:00:00"
    assert render(template, date=datetime.date(2026, 12, 1)) == "01 Dec 2026 00:00:00"


def test_the_conventions_of_hugging_face() -> None:
    assert render("{% if true %}\n  {{- bos_token }}\n  {% endif %}x") == "<s>\nx"
    assert render("{{ messages | tojson }}", [{"role": "user", "content": "<é>"}]) == (
        '[{"role": "user", "content": "<é>"}]'
    )
    assert render("{% generation %}a{% endgeneration %}{{ tools }}{{ missing_token }}") == "aNone"
    assert render("{% for m in messages %}{% break %}{% endfor %}b") == "b"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content.nothing.more }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_a_template_that_fails_is_an_input_error(source: str) -> None:
    with pytest.raises(InputError, match="messages: the model's chat template refuses them"):
        render(source)


@pytest.mark.parametrize(
    "source",
    ["{% if %}", "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "{{ " + "-" * 3000 + "1 }}", "{{ 10**10000 }}"],
    ids=["syntax", "depth", "signs", "number"],
)
def test_a_template_that_cannot_be_read_is_a_model_error(source: str) -> None:
    with pytest.raises(ModelError, match="not valid"):
        render(source)


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        (["Hi"], r"messages\[0\]"),
        ([{"role": "user"}], r"messages\[0\].content"),
        ([*HI, {"role": 3, "content": ""}], r"messages\[1\].role"),
        ([{"role": "user", "content": "Hi", "images": []}], r"messages\[0\]: has the unknown key 'images'"),
    ],
)
def test_malformed_messages_are_named(messages: list[Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        render("x", messages)


def test_a_model_without_template(write_gguf: Callable[..., Path]) -> None:
    tokenizer = load_source(write_gguf({"tokenizer.chat_template": None})).tokenizer
    with pytest.raises(InputError, match=r"no chat template.*plain prompt"):
        tokenizer.apply_chat_template(HI)
    other = load_source(write_gguf()).tokenizer
    assert other.template_digest != tokenizer.template_digest
