"""The clients that people use, unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from live import NAME, Live

openai = pytest.importorskip("openai", reason="the extra 'clients' is not installed")

QUESTION: list[Any] = [{"role": "user", "content": "Name a colour."}]


@pytest.fixture
def client(api: Live) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def text_of(api: Live, **body: Any) -> str:
    text: str = api.chat("Name a colour.", **body)["choices"][0]["message"]["content"]
    return text


def test_openai_chat(api: Live, client: Any) -> None:
    answer = client.chat.completions.create(
        model=NAME, messages=QUESTION, max_completion_tokens=8, seed=3, temperature=1, logprobs=True, top_logprobs=2
    )
    assert answer.choices[0].message.content == text_of(api, max_tokens=8, seed=3, temperature=1)
    assert answer.system_fingerprint.startswith("sha256:")
    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert answer.samebits["seed"] == 3


def test_openai_streams(api: Live, client: Any) -> None:
    stream = client.chat.completions.create(
        model=NAME, messages=QUESTION, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == text_of(api, max_tokens=8)
    assert chunks[-1].usage.completion_tokens == 8
    assert chunks[-2].samebits["level"] == "portable"


def test_the_stream_helper_of_openai(api: Live, script: Any) -> None:
    scripted: Live = script(b"Red.", api.ok("/tokenize", messages=QUESTION)["count"])
    with (
        openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="none") as client,
        client.chat.completions.stream(model=NAME, messages=QUESTION) as events,
    ):
        deltas = [event.delta for event in events if event.type == "content.delta"]
        assert events.get_final_completion().choices[0].message.content == "".join(deltas) == "Red."


def test_openai_async(api: Live) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key="none") as client:

            async def one(stream: bool) -> str:
                answer = await client.chat.completions.create(
                    model=NAME, messages=QUESTION, max_tokens=8, stream=stream
                )
                if not stream:
                    return str(answer.choices[0].message.content)
                return "".join([c.choices[0].delta.content or "" async for c in answer])

            return await asyncio.gather(*(one(i % 2 == 0) for i in range(8)))

    assert set(asyncio.run(ask())) == {text_of(api, max_tokens=8)}


def test_openai_completions_and_models(api: Live, client: Any) -> None:
    answer = client.completions.create(
        model=NAME, prompt=["a", "b"], max_tokens=4, logprobs=1, n=2, extra_body={"top_k": 5}
    )
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert len(answer.choices[0].logprobs.tokens) == 4
    assert [m.id for m in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).id == NAME


def test_openai_errors(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=NAME, messages=QUESTION, temperature=9)
    assert caught.value.param == "temperature"
    assert caught.value.code == "invalid_value"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model=NAME, input="a")


def test_langchain(api: Live) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="the extra 'clients' is not installed")
    chat = langchain.ChatOpenAI(
        base_url=f"{api.url}/v1", api_key="none", model=NAME, max_tokens=8, temperature=0, seed=1
    )
    assert chat.invoke("Name a colour.").content == text_of(api, max_tokens=8)
    assert "".join(c.content for c in chat.stream("Name a colour.")) == text_of(api, max_tokens=8)


def test_instructor(api: Live, script: Any) -> None:
    """In the mode that needs nothing of the server but text."""
    instructor = pytest.importorskip("instructor", reason="the extra 'clients' is not installed")
    from pydantic import BaseModel

    class Colour(BaseModel):
        name: str
        warm: bool

    seen: list[Any] = []
    with openai.OpenAI(base_url=f"{api.url}/v1", api_key="none") as probe:
        patched = instructor.from_openai(probe, mode=instructor.Mode.MD_JSON)
        patched.on("completion:kwargs", lambda **kwargs: seen.append(kwargs["messages"]))
        with pytest.raises(Exception, match="context"):  # too long for this model; what was sent is all that is wanted
            patched.chat.completions.create(model=NAME, messages=QUESTION, response_model=Colour, max_retries=0)
    tokens = api.ok("/tokenize", messages=seen[0])["count"]
    scripted: Live = script(b'```json\n{"name": "red", "warm": true}\n```', tokens)
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="none") as client:
        patched = instructor.from_openai(client, mode=instructor.Mode.MD_JSON)
        colour = patched.chat.completions.create(model=NAME, messages=QUESTION, response_model=Colour, max_retries=0)
    assert colour.model_dump() == {"name": "red", "warm": True}
