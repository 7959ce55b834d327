"""A call of one of the request's tools keeps the tool's name, whatever it is."""

from collections.abc import Callable
from typing import Any

import pytest

from durable_agent_host.providers.anthropic.request_messages import with_valid_calls
from durable_agent_host.providers.chat_completions.request_messages import with_valid_names as named_messages
from durable_agent_host.providers.gemini.raw_json_transport import with_valid_names as named_contents
from durable_agent_host.providers.openai.request_items import with_valid_names

NAME = "天气.get"
FUNCTION = {"name": NAME, "arguments": "{}"}
REQUESTS = {
    "Responses": (with_valid_names, {"type": "function_call", "id": "fc_1", "call_id": "a", **FUNCTION}),
    "Completions": (named_messages, {"role": "assistant", "tool_calls": [{"id": "a", "function": FUNCTION}]}),
    "Claude": (with_valid_calls, {"role": "assistant", "content": [{"type": "tool_use", "name": NAME, "input": {}}]}),
    "Gemini": (named_contents, {"role": "model", "parts": [{"functionCall": {"name": NAME, "args": {}}}]}),
}


@pytest.mark.parametrize(("rename_calls", "message"), REQUESTS.values(), ids=REQUESTS)
def test_names_of_the_requests_tools_stay(rename_calls: Callable[..., Any], message: dict[str, Any]):
    """Another call by such a name gets one that every service accepts."""
    assert rename_calls([message], {NAME}) == [message]
    assert rename_calls([message], set()) != [message]
