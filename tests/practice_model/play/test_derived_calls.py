"""Calls derived from sentences."""

import pytest

from practice_model.play.derived_calls import Call, derive_calls

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def schema(*required_names, **properties):
    return {"type": "object", "properties": properties, "required": list(required_names) or list(properties)}


TOOLS = {
    "echo": schema(message=TEXT),
    "add": schema(a=NUMBER, b=NUMBER),
    "multiply": schema(a=NUMBER, b=NUMBER),
    "get_weather": schema("city", city=TEXT, unit={"type": "string", "enum": ["C", "F"]}),
    "roll_dice": {"type": "object", "properties": {}},
}


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Please echo 'hello world'", [Call("echo", {"message": "hello world"})]),
        ("Now echo 'goodbye'", [Call("echo", {"message": "goodbye"})]),
        ('echo "it\'s fine"', [Call("echo", {"message": "it's fine"})]),
        ("Please echo hello there.", [Call("echo", {"message": "hello there"})]),
        ("echo 'a' and echo 'b'", [Call("echo", {"message": "a"}), Call("echo", {"message": "b"})]),
        (
            "Add and multiply the number 2 and 3",
            [Call("add", {"a": 2, "b": 3}), Call("multiply", {"a": 2, "b": 3})],
        ),
        (
            'call add with {"a":2,"b":3} and multiply with {"a": 4, "b": 5}',
            [Call("add", {"a": 2, "b": 3}), Call("multiply", {"a": 4, "b": 5})],
        ),
        ("Use get_weather for Oslo", [Call("get_weather", {"city": "Oslo"})]),
        ("roll_dice", [Call("roll_dice", {})]),
        ("What did I ask you to echo before?", []),
        ("Tell me a story", []),
        ("Please echo 'what was before' again", [Call("echo", {"message": "what was before"})]),
        ("echo 'please add 1 and 2'", [Call("echo", {"message": "please add 1 and 2"})]),
    ],
)
def test_sentences_become_calls(text, calls):
    """The tools named in a sentence are called, with the values in it."""
    assert derive_calls(text, TOOLS) == calls


def test_the_argument_name_comes_from_the_schema():
    """Only the schema of a tool is used; null is not a type of a value."""
    odd = {"echo": schema(Worte={"anyOf": [{"type": "null"}, {"type": "string"}]})}
    assert derive_calls("echo 'x'", odd) == [Call("echo", {"Worte": "x"})]
