"""Answers held against a response format."""

import json

import pytest

from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.turn.response_format import (
    STEPS_AT_ONCE,
    TooMuchToCheckError,
    check_response_format,
    validate_response,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WRAPPED = {"type": "json_schema", "json_schema": {"name": "City", "schema": SCHEMA, "strict": True}}
FLAT = {"type": "json_schema", "name": "City", "schema": SCHEMA}


@pytest.mark.parametrize("response_format", [SCHEMA, WRAPPED, FLAT])
def test_a_valid_response_is_accepted(response_format):
    """A schema comes bare, or wrapped as the OpenAI APIs do."""
    validate_response('{"city": "Oslo"}', response_format)


@pytest.mark.parametrize("response_format", [SCHEMA, WRAPPED, FLAT])
@pytest.mark.parametrize("answer", ['{"city": 5}', "{}", "[]", "null"])
def test_an_invalid_response_is_rejected(response_format, answer):
    """The error says that it is the answer, and where it does not fit."""
    with pytest.raises(InvalidAnswerError, match=r"does not fit response_format: .* at \$"):
        validate_response(answer, response_format)


@pytest.mark.parametrize("response_format", [SCHEMA, WRAPPED, FLAT, {"type": "json_object"}])
@pytest.mark.parametrize("answer", ["", "Oslo", '{"city": '])
def test_a_response_that_is_not_json_is_rejected(response_format, answer):
    """A text is no answer to a question for JSON."""
    with pytest.raises(InvalidAnswerError, match="is not JSON"):
        validate_response(answer, response_format)


@pytest.mark.parametrize("schema", [{"type": "banana"}, {"properties": 5}, {"$ref": "#/nowhere"}])
def test_an_invalid_schema_is_reported(schema):
    """A schema that cannot be used is the caller's mistake, in words."""
    with pytest.raises(RequestError, match="response_format"):
        validate_response("{}", schema)


def test_a_remote_schema_is_not_fetched():
    """A reference to a URL is an error; nothing is loaded from the network."""
    with pytest.raises(RequestError, match="response_format"):
        validate_response("{}", {"$ref": "http://127.0.0.1:9/schema.json"})


SLOW = {
    "a pattern that backtracks": ({"type": "string", "pattern": "^(a+)+$"}, json.dumps("a" * 60 + "!")),
    "references that double": (
        {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {}}}
        | {"$ref": "#/$defs/d0"},
        "1",
    ),
    "a dialect within another": (
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "minLength": 1}}},
        '{"a": "x"}',
    ),
    "references that are searched for": ({"items": {"$ref": "#a"}, "$defs": {"a": {"$anchor": "a"}}}, "[1]"),
    "references of an old dialect": (
        {
            "items": {"$ref": "#a"},
            "definitions": {"a": {"id": "#a"}},
            "$schema": "http://json-schema.org/draft-04/schema#",
        },
        "[1]",
    ),
    "much of both": ({"items": {"allOf": [{"type": "integer"}] * 1000}}, json.dumps([1] * 1000)),
}


@pytest.mark.parametrize("slow", SLOW)
def test_a_slow_pattern_does_not_reject_a_response(slow):
    """A client's schema costs the process that asked for few steps no more than these."""
    schema, answer = SLOW[slow]
    check_response_format(schema)
    with pytest.raises(TooMuchToCheckError):
        validate_response(answer, schema, max_steps=STEPS_AT_ONCE)


def test_a_typical_response_needs_few_steps():
    """References, choices and lists of a model class are held against an answer where it is."""
    city = {"type": "object", "properties": {"name": {"type": "string"}, "near": {"anyOf": [{"$ref": "#/$defs/City"}]}}}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"City": city}}
    schema |= {"type": "array", "items": {"$ref": "#/$defs/City"}}
    answer = [{"name": "Oslo", "near": {"name": "Moss", "near": {"name": "Ski"}}}] * 500
    validate_response(json.dumps(answer), schema, max_steps=STEPS_AT_ONCE)
    with pytest.raises(InvalidAnswerError, match=r"is not of type 'string' at \$\[500\]"):
        validate_response(json.dumps([*answer, {"name": 5}]), schema, max_steps=STEPS_AT_ONCE)


UNUSABLE = {
    "nested too deeply": json.loads('{"not":' * 400 + "{}" + "}" * 400),
    "has more than 65536 characters": {"description": "x" * 65_536},
    "has more than 2000 objects": {"allOf": [{}] * 2_000},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_schema_that_is_too_deep_or_too_long_is_rejected(name):
    """Before a model is asked, and before it takes seconds to read it."""
    with pytest.raises(RequestError, match=name):
        check_response_format(UNUSABLE[name])


DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
LOST = {
    "#/nowhere": {"$ref": "#/nowhere"},
    "#/$defs/city": {"properties": {"near": {"items": {"$ref": "#/$defs/city"}}}},
    "http://127.0.0.1:9/s.json": {"$ref": "http://127.0.0.1:9/s.json"},
    "other": {"$id": "http://127.0.0.1:9/", "$ref": "other"},
    "file:///etc/hostname": {"allOf": [{"$ref": "file:///etc/hostname"}]},
    "http://[": {"$ref": "http://["},
    "#nowhere": {"$dynamicRef": "#nowhere"},
    "#/title": {"title": "a text", "$ref": "#/title"},
    "#/enum/first": {"enum": [1], "$ref": "#/enum/first"},
    "#/maxLength/more": {"maxLength": 1, "$ref": "#/maxLength/more"},
    "#/later": {"not a keyword": {"$ref": "#/later"}, "$ref": "#/not a keyword"},
    "#old": {"$schema": DRAFT_7, "dependencies": {"a": {}, "b": ["c"]}, "$ref": "#old"},
}


@pytest.mark.parametrize("reference", LOST)
def test_a_reference_without_a_schema_is_rejected(reference):
    """Before a model is asked, and by its name."""
    with pytest.raises(RequestError) as error_info:
        check_response_format(LOST[reference])
    assert f"its reference {json.dumps(reference)} leads to no schema within it" in str(error_info.value)


UNREADABLE = {
    "'banana' is not valid": {"components": {"a": {"type": "banana"}}, "$ref": "#/components/a"},
    "its reference 5 leads": {"$schema": DRAFT_4, "$ref": 5},
    "its ids and references cannot be read": {"$id": "http://[", "items": {}, "$ref": "#"},
    "more than 2000 objects": {
        "components": json.loads('{"not":' * 60 + json.dumps({"allOf": [{}] * 100}) + "}" * 60),
        "allOf": [{"$ref": "#/components" + "/not" * level} for level in reversed(range(60))],
    },
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_a_reference_leads_to_is_checked(name):
    """Also outside of the places where JSON Schema has schemas, and not for ever."""
    with pytest.raises(RequestError, match=name):
        check_response_format(UNREADABLE[name])


FOUND = [
    {"$defs": {"a": {"$anchor": "a", "type": "string"}}, "$ref": "#a"},
    {"$dynamicAnchor": "node", "properties": {"next": {"$dynamicRef": "#node"}}},
    {"components": {"schemas": {"A": {"properties": {"a": {"$ref": "#/components/schemas/A"}}}}}}
    | {"$ref": "#/components/schemas/A"},
    {"$id": "http://127.0.0.1:9/", "$defs": {"a": {"$id": "other"}}, "$ref": "other"},
    {"$schema": DRAFT_7, "definitions": {"a": {"$id": "#a"}}, "properties": {"a": {"$ref": "#a"}}},
    {
        "$schema": DRAFT_7,
        "dependencies": {"a": {}, "b": ["c"]},
        "properties": {"a": {"$ref": "#/properties/b"}, "b": {}},
    },
    {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    {"properties": {"$ref": {"const": {"$ref": "#/nowhere"}}}},
]


@pytest.mark.parametrize("schema", FOUND)
def test_a_reference_to_a_schema_is_accepted(schema):
    """Whatever its form; data that looks like a reference is none."""
    check_response_format(schema)
    with pytest.raises(InvalidAnswerError, match="is not JSON"):
        validate_response("", schema)
