"""OpenAI's Python client works as it is: what it asks is answered, and what is refused raises the errors that it has for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.serving.language_model.http_server import NAME, Server, expected, prompt_of

HELLO = [{"role": "user", "content": "Hello"}]


def client_of(server: Server, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key)


@pytest.fixture(scope="module")
def client(http_program: Path) -> Iterator[openai.OpenAI]:
    with Server(http_program) as server, client_of(server) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).object == "model"


def test_completions(client: openai.OpenAI) -> None:
    whole = client.completions.create(model=NAME, prompt="Hello", max_tokens=8, temperature=0, logprobs=2, n=2, seed=1)
    assert [choice.text for choice in whole.choices] == [expected("Hello", 8)] * 2
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 16
    found = whole.choices[0].logprobs
    assert found is not None
    assert found.token_logprobs is not None
    assert len(found.token_logprobs) == 8
    parts = list(client.completions.create(model=NAME, prompt="Hello", max_tokens=8, temperature=0, stream=True))
    assert "".join(part.choices[0].text for part in parts) == expected("Hello", 8)
    assert parts[-1].choices[0].finish_reason == "length"


def test_chats(client: openai.OpenAI) -> None:
    right = expected(prompt_of(HELLO), 8)
    whole = client.chat.completions.create(
        model=NAME, messages=HELLO, max_tokens=8, temperature=0, logprobs=True, top_logprobs=2, stop=["never"]
    )
    assert whole.choices[0].message.content == right
    found = whole.choices[0].logprobs
    assert found is not None
    assert [len(token.top_logprobs) for token in found.content] == [2] * 8
    with client.chat.completions.create(
        model=NAME, messages=HELLO, max_completion_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}
    ) as stream:
        parts = list(stream)
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == right
    assert parts[-1].usage.completion_tokens == 8


def test_a_stream_that_is_left_ends(client: openai.OpenAI) -> None:
    with client.completions.create(model=NAME, prompt="Hello", max_tokens=1000, temperature=0, stream=True) as stream:
        assert next(iter(stream)).choices
    assert client.completions.create(model=NAME, prompt="Hello", max_tokens=1, temperature=0).choices


def test_refusals_raise_its_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="other"):
        client.completions.create(model="other", prompt="Hello")
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model=NAME, prompt="Hello", temperature=-1)
    assert raised.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(model=NAME, messages=HELLO, tools=[{"type": "function", "function": {"name": "f"}}])


def test_keys(http_program: Path) -> None:
    with Server(http_program, "--api-key", "secret") as server:
        with client_of(server, "secret") as client:
            assert client.models.list().data
        with client_of(server, "wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
