"""Long requests are written as the SDKs write them."""

from typing import Any

import pytest
from anthropic import AsyncAnthropic
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncAzureOpenAI, AsyncOpenAI
from openai._utils._json import openapi_dumps

from durable_agent_host.concurrency.thread_offload import MANY
from durable_agent_host.providers.chunked_request_body import encode_body, encode_items, is_long, with_chunked_bodies

_LONG = 300_000
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(_TEXTS, _VALUES, max_size=4), max_size=5), _TEXTS)
def test_messages_have_the_bytes_of_the_sdk(items: list[dict[str, Any]], text: str):
    """Short and long texts at any depth come out as they do from the SDK; so does a whole body."""
    long_item = {"content": [{"text": (text[:1] or "é") * _LONG, "n": 1}, *items], "type": text}
    for given_items in (items, [*items, long_item, *items]):
        assert b"[" + b"".join(encode_items(given_items) or []) + b"]" == openapi_dumps(given_items)
        body: dict[str, Any] = {"model": text, "contents": given_items, "reasoning": {"effort": None}}
        assert encode_body(body) == openapi_dumps(body)


@pytest.mark.parametrize("value", [object(), float("nan"), {1: "x" * _LONG}])
def test_what_is_no_json_is_left_to_the_sdk(value: object):
    """Messages with another object are not written here."""
    assert encode_items([{"content": value}]) is None
    assert encode_body({"contents": [{"content": value}]}) is None


def test_a_client_of_the_apps_own_class_sends_as_it_does():
    """Its hooks, and middleware, may read the messages; hooks of the SDKs do not."""

    class Signs(AsyncOpenAI):
        async def _prepare_options(self, options: Any) -> Any:
            return await super()._prepare_options(options)

    own = Signs(api_key="key")
    assert with_chunked_bodies(own) is own

    async def watch(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    watched = AsyncAnthropic(api_key="key", middleware=[watch])
    assert with_chunked_bodies(watched) is watched
    azure = AsyncAzureOpenAI(api_key="key", azure_endpoint="https://x.invalid", api_version="v1")
    for sdk in (AsyncOpenAI(api_key="key"), azure, AsyncAnthropic(api_key="key")):
        assert isinstance(with_chunked_bodies(sdk), type(sdk))
        assert with_chunked_bodies(sdk) is not sdk


def test_an_input_is_long_by_its_items_or_its_texts():
    """Some short items are written by the SDK."""
    assert not is_long([{"content": "text"}] * MANY)
    assert is_long([{"content": "text"}] * (MANY + 1))
    assert is_long([{"content": [{"text": "x" * 2 * _LONG}]}])
    deep: list[Any] = ["x" * 2 * _LONG]
    for _ in range(5000):
        deep = [deep]
    assert is_long(deep)
    assert encode_items(deep) is None  # deeper than a recursion may be
