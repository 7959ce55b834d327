"""Long inputs are written as the SDK writes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._utils._json import openapi_dumps

from durable_agent_host.loops.aside import MANY
from durable_agent_host.providers.openai.encoded_input import encode_body, encode_input, is_long

_LONG = 300_000
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(_TEXTS, _VALUES, max_size=4), max_size=5), _TEXTS)
def test_a_body_has_the_bytes_of_the_sdk(items: list[dict[str, Any]], text: str):
    """Short and long texts at any depth, and what stands around the input, come out as they do from the SDK."""
    long_item = {"content": [{"text": (text[:1] or "é") * _LONG, "n": 1}, *items], "type": text}
    for given_items in (items, [*items, long_item, *items]):
        body: dict[str, Any] = {"model": text, "input": given_items, "reasoning": {"effort": None}, "stream": True}
        assert encode_body({**body, "input": encode_input(given_items)}) == openapi_dumps(body)


@pytest.mark.parametrize("value", [object(), float("nan")])
def test_what_is_no_json_is_left_to_the_sdk(value: object):
    """An input with another object stays as it is, and so does a body around one."""
    items = [{"content": value}]
    assert encode_input(items) is items
    assert encode_body({"input": items}) is None
    assert encode_body({"input": encode_input([]), "other": value}) is None


def test_an_input_is_long_by_its_items_or_its_texts():
    """Some short items are written by the SDK."""
    assert not is_long([{"content": "text"}] * MANY)
    assert is_long([{"content": "text"}] * (MANY + 1))
    assert is_long([{"content": [{"text": "x" * 2 * _LONG}]}])
