"""The table of services: what the client of each service writes of one and the same conversation."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import Content, Message
from agent_framework_openai import OpenAIChatCompletionClient

from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.chat_completions.provider import CHAT
from durable_agent_host.providers.services import SERVICES

Json = dict[str, Any]

_PICTURE = Content.from_data(b"png", media_type="image/png")
_STATED: Json = {"provider": "chat_completions", "type": "message", "id": "cc_1", "service": "api.openai.com"}
_OTHER_FIELDS: Json = {"reasoning_content": "Hm.", "reasoning": "Hm.", "mood": "sunny"}
_HEAD = """## Services of Chat Completions

What the client sends to each service of one conversation that OpenAI takes as it is: a call whose id repeats, with
arguments that are no JSON, an answer with fields of its own, a tool that returns nothing and then a picture, two
messages of the user, a later system message and one of a developer. The last row is for a service that has refused its
row. Sources of the rows are in `providers/services.py`.

"""
_COLUMNS = (
    *("service", "ids of calls", "arguments", "`content` of a call", "an empty result", "a picture of a tool"),
    *("messages of one role", "later system message", "`developer`", "left out"),
)


def _conversation() -> list[Message]:
    call = {"call_id": "functions.look:0", "name": "look"}
    stamp: Json = {"durable_agent_host.item": {**_STATED, "message": _OTHER_FIELDS}}
    answer = Content("text", text="Seen.", additional_properties=stamp)
    results = [
        Content.from_function_result("functions.look:0", result=result)
        for result in ("", [Content("text", text="x"), _PICTURE])
    ]
    return [
        Message("system", ["Help."]),
        Message("user", ["Look"]),
        Message("assistant", [Content("function_call", **call, arguments="{}")]),
        Message("tool", [results[0]]),
        Message("assistant", [Content("function_call", **call, arguments='{"what": ')]),
        Message("tool", [results[1]]),
        Message("assistant", [answer], author_name="Helper"),
        Message("system", ["Be brief."]),
        Message("developer", ["Be kind."]),
        Message("user", ["One"]),
        Message("user", ["Two"]),
    ]


def _write_body(service: str, *, is_refused: bool) -> Json:
    client = OpenAIChatCompletionClient(model="m", api_key="k", base_url="https://api.openai.com/v1")
    client.additional_properties["service"] = service
    options = {
        "parallel_tool_calls": False,
        "store": False,
        "max_tokens": 5,
        "tools": [{"type": "function", "function": {}}],
    }
    losses = [LostState("form")] if is_refused else []
    messages, _ = CHAT.carry(_conversation(), {}, losses)
    body = CHAT.adapt(client)._prepare_options(messages, options)
    return body | body["extra_body"]


def _cells(body: Json) -> Sequence[str]:
    messages: list[Json] = body["messages"]
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    arguments = calls[1]["function"]["arguments"]
    roles = [message["role"] for message in messages]
    calling = next(message for message in messages if message.get("tool_calls"))
    has_picture = "image_url" in str(messages)
    next_role = roles[roles.index("tool", roles.index("tool") + 1) + 1]
    picture = (
        "named in the result"
        if not has_picture
        else "a message of the user"
        if next_role == "user"
        else "the same, behind the assistant's"
    )
    return (
        "made different" if calls[0]["id"] == "functions.look:0" else f"{len(calls[0]['id'])} characters",
        "as they came" if arguments == '{"what": ' else "a JSON object",
        {None: "null", "": "empty"}.get(calling["content"], "a text"),
        "a text" if messages[roles.index("tool")]["content"] else "empty",
        picture,
        "as they came" if messages[-1]["content"] == "Two" else "joined",
        "as it came" if roles.count("system") > 1 else "joined with the first",
        "as it is" if "developer" in roles else "`system`",
        ", ".join(f"`{name}`" for name in _missing_names(body)) or "-",
    )


def _missing_names(body: Mapping[str, Any]) -> list[str]:
    fields = {name for message in body["messages"] if message["role"] == "assistant" for name in message}
    names = {"name", *_OTHER_FIELDS} - fields
    return sorted(names | ({"max_completion_tokens", "parallel_tool_calls", "store"} - body.keys()))


def write_services() -> str:
    """Measure all rows, and give the section of the page."""
    rows = [(row.name, _cells(_write_body(row.name, is_refused=False))) for row in SERVICES]
    rows.append(("any, once refused", _cells(_write_body("unknown", is_refused=True))))
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *([name, *cells] for name, cells in rows)]
    return _HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
