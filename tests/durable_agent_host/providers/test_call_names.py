"""Names of calls in requests, in the words of the services that refuse them."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import pytest

from durable_agent_host.providers.anthropic.request_messages import with_valid_calls
from durable_agent_host.providers.chat_completions.request_messages import with_valid_names as named_messages
from durable_agent_host.providers.gemini.raw_json_transport import with_valid_names as named_contents
from durable_agent_host.providers.openai.request_items import with_valid_names
from tests.durable_agent_host.service_rules import find_violation


def responses(name: object) -> list[dict]:
    """A call in the input of the Responses API."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": name, "arguments": "{}"}
    return [{"role": "user", "content": "Hi"}, call, {"type": "function_call_output", "call_id": "a", "output": ""}]


def completions(name: object) -> list[dict]:
    """A call in the messages of Chat Completions."""
    call = {"id": "a", "type": "function", "function": {"name": name, "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "a", "content": ""}
    return [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}, result]


def claude(name: object) -> list[dict]:
    """A call in the messages of Anthropic."""
    call = {"type": "tool_use", "id": "a", "name": name, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    spoken = [{"type": "text", "text": "Hi"}]
    turns = [("user", spoken), ("assistant", [call]), ("user", [result])]
    return [{"role": role, "content": content} for role, content in turns]


def gemini(name: object) -> list[dict]:
    """A call in the contents of Gemini."""
    response = {"functionResponse": {"name": name, "response": {}}}
    turns = [("user", {"text": "Hi"}), ("model", {"functionCall": {"name": name, "args": {}}}), ("user", response)]
    return [{"role": role, "parts": [part]} for role, part in turns]


class Service(NamedTuple):
    """What writes a conversation with a call of a name, what mends it, and the request around it."""

    client: str
    conversation: Callable[[object], list[dict]]
    rename_calls: Callable[[list[dict], frozenset[str]], list[dict]]
    field: str
    more: dict[str, object]

    def find_violation(self, messages: list[dict]) -> object:
        """Return the service's error for a request with the messages; None if it is accepted."""
        return find_violation(self.client, {self.field: messages, **self.more})


SERVICES = [
    Service("Responses", responses, with_valid_names, "input", {}),
    Service("Completions", completions, named_messages, "messages", {"model": "m"}),
    Service("Claude", claude, with_valid_calls, "messages", {"model": "m", "max_tokens": 1}),
    Service("Gemini", gemini, named_contents, "contents", {}),
]
services = pytest.mark.parametrize("service", SERVICES, ids=[service.client for service in SERVICES])


@services
@pytest.mark.parametrize("name", ["", None, "no such tool", "x" * 300, "say\n", "a\0b", "查询", "."])
def test_a_call_with_any_name_is_accepted(service: Service, name: object):
    """What is given is not changed, and doing it again changes nothing."""
    messages = service.conversation(name)
    before = copy.deepcopy(messages)
    assert service.find_violation(messages) is not None
    sent = service.rename_calls(messages, frozenset())
    assert messages == before
    assert service.find_violation(sent) is None
    assert service.rename_calls(sent, frozenset()) == sent


@services
@pytest.mark.parametrize(("name", "tool_names"), [("say", []), ("get_weather-2", []), ("天气.get", ["天气.get"])])
def test_good_names_and_names_of_the_request_s_tools_stay(service: Service, name: str, tool_names: list[str]):
    """Services other than the first ones may accept more; they say so by accepting the tool."""
    assert service.rename_calls(service.conversation(name), frozenset(tool_names)) == service.conversation(name)
