"""Answers held against a response format."""

import pytest

from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.turn.answer_schema import check_answer

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WRAPPED = {"type": "json_schema", "json_schema": {"name": "City", "schema": SCHEMA, "strict": True}}
FLAT = {"type": "json_schema", "name": "City", "schema": SCHEMA}


@pytest.mark.parametrize("response_format", [SCHEMA, WRAPPED, FLAT])
def test_an_answer_that_fits_is_taken(response_format):
    """A schema comes bare, or wrapped as the OpenAI APIs do."""
    check_answer('{"city": "Oslo"}', response_format)


@pytest.mark.parametrize("response_format", [SCHEMA, WRAPPED, FLAT])
@pytest.mark.parametrize("answer", ['{"city": 5}', "{}", "[]", "null"])
def test_an_answer_that_does_not_fit_is_refused(response_format, answer):
    """The error says that it is the answer, and where it does not fit."""
    with pytest.raises(InvalidAnswerError, match=r"does not fit response_format: .* at \$"):
        check_answer(answer, response_format)


@pytest.mark.parametrize("response_format", [SCHEMA, WRAPPED, FLAT, {"type": "json_object"}])
@pytest.mark.parametrize("answer", ["", "Oslo", '{"city": '])
def test_an_answer_that_is_no_json_is_refused(response_format, answer):
    """A text is no answer to a question for JSON."""
    with pytest.raises(InvalidAnswerError, match="is not JSON"):
        check_answer(answer, response_format)


@pytest.mark.parametrize("schema", [{"type": "banana"}, {"properties": 5}, {"$ref": "#/nowhere"}])
def test_a_schema_that_is_none_is_told_as_such(schema):
    """A schema that cannot be used is the caller's mistake, in words."""
    with pytest.raises(RequestError, match="response_format"):
        check_answer("{}", schema)


def test_a_schema_that_refers_to_another_place_is_not_fetched():
    """A reference to a URL is an error; nothing is loaded from the network."""
    with pytest.raises(RequestError, match="response_format"):
        check_answer("{}", {"$ref": "http://127.0.0.1:9/schema.json"})
