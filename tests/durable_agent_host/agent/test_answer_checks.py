"""Answers held against what clients ask for, beside all others."""

import json

import pytest

from durable_agent_host.agent.response_format_worker import validate_in_worker
from durable_agent_host.errors import InvalidAnswerError


async def test_a_pattern_is_held_against_an_answer_apart():
    """What cannot be counted is found out in another process, with the same words."""
    schema = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[a-z]{3}$"}}}
    await validate_in_worker('{"code": "abc"}', schema)
    with pytest.raises(InvalidAnswerError, match=r"'ABC' does not match '\^\[a-z\]\{3\}\$' at \$\.code"):
        await validate_in_worker('{"code": "ABC"}', schema)


async def test_a_pattern_that_backtracks_is_given_up():
    """Nobody waits for it longer than the time that it has, and it does not run on."""
    with pytest.raises(InvalidAnswerError, match="took longer than 2 s"):
        await validate_in_worker(json.dumps("a" * 60 + "!"), {"type": "string", "pattern": "^(a+)+$"}, seconds=2)
