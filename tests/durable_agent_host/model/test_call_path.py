"""Paths of calls: their text, and their place in the journal's golden forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.model.call_path import (
    AGENT_RUN,
    CallPath,
    CompactionStep,
    ExecutorStep,
    ModelStep,
    ToolStep,
    parse_call_path,
)

NUMBERS = st.integers(0, 1000)
STEPS = st.one_of(
    st.builds(ModelStep, NUMBERS),
    st.builds(CompactionStep, NUMBERS),
    st.builds(ToolStep, st.text(min_size=1), NUMBERS),
    st.builds(ExecutorStep, st.text()),
)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (CallPath().model_call(0), "m0"),
        (CallPath().model_call(2).compaction_call(1), "m2/c1"),
        (CallPath().model_call(0).tool_call("call_1"), "m0/t:call_1"),
        (CallPath().model_call(0).tool_call("a/b#1", 2), "m0/t:a%2Fb%231#2"),
        (CallPath().model_call(0).tool_call("call_1").model_call(1), "m0/t:call_1/m1"),
        (AGENT_RUN.model_call(3), "t:agent/m3"),
        (CallPath().executor("a/b").model_call(3), "a:a%2Fb/m3"),
    ],
)
def test_a_path_has_a_text(path: CallPath, text: str):
    """The text says where the call is made, and names no other call."""
    assert str(path) == text
    assert parse_call_path(text) == path


@given(st.lists(STEPS, min_size=1, max_size=6).map(tuple))
def test_a_path_is_read_back_from_its_text(steps: tuple):
    """Whatever ids the model's service gives to calls."""
    path = CallPath(steps)
    assert parse_call_path(str(path)) == path


@pytest.mark.parametrize("text", ["", "x1", "m", "m0/", "m0//c1", "t:a#b"])
def test_other_texts_are_no_paths(text: str):
    """A damaged entry is noticed."""
    with pytest.raises(ValueError, match=r"step|invalid literal"):
        parse_call_path(text)


def test_what_is_made_within_a_tool_call_is_nested():
    """The calls of the turn's own agent are not."""
    tool_call = CallPath().model_call(0).tool_call("call_1")
    assert not tool_call.is_nested
    assert not CallPath().model_call(1).compaction_call(0).is_nested
    assert tool_call.model_call(0).is_nested
    assert CallPath().executor("writer").model_call(0).is_nested


@pytest.mark.parametrize(
    ("path", "run", "position"),
    [
        ("m1", "", 1),
        ("m1/c0", "", 1),
        ("m1/t:a", "", 1),
        ("m1/t:a/m2", "m1/t:a", 2),
        ("m1/t:a/m2/t:b", "m1/t:a", 2),
        ("a:writer/m3/t:b", "a:writer", 3),
        ("m1/t:a/t:b", "m1/t:a", -1),
    ],
)
def test_a_path_has_the_run_that_makes_the_call(path: str, run: str, position: int):
    """Model calls are counted in each run, from 0."""
    parsed_path = parse_call_path(path)
    assert (str(parsed_path.run), parsed_path.position) == (run, position)
