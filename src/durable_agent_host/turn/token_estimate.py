"""The size of a model request in tokens, estimated from what it sends. Decodes no data."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import Content, FunctionTool, Message
from pydantic import BaseModel

from durable_agent_host.model.conversation_file import media_type_of_name
from durable_agent_host.turn.file_names import OCTETS

CHARACTERS_PER_TOKEN: Final = 4
"""Of English text; JSON and code have fewer."""
MEDIA_TOKENS: Final = 1500
"""Of an image, of a file that the service has or fetches, and the least of any other that is not text."""

_BYTES_PER_TOKEN: Final = 100
"""Of a file that is not text."""
_FILES: Final = frozenset({"data", "uri", "hosted_file"})
_TEXTS: Final = frozenset({"text", "text_reasoning"})
_SENT_FIELDS: Final = (
    *("text", "arguments", "inputs", "outputs", "output", "commands", "actions", "screenshot", "stdout", "stderr"),
    "function_call",
)
"""Fields of other contents that a request may send, besides a tool's result."""
_TEXT_FILE: Final = re.compile(
    r"text/.*|[^/]+/(.*\+)?(json|json5|jsonl|x-ndjson|xml|yaml|x-yaml|csv|toml|sql|rtf|graphql|"
    r"javascript|x-javascript|ecmascript|typescript|x-typescript|x-sh|x-python)"
)


def tokens_of_request(messages: Iterable[Message], options: Mapping[str, Any]) -> int:
    """Estimate how many tokens a model reads for a request."""
    characters = _characters_of(content for message in messages for content in message.contents)
    tools: Any = options.get("tools") or ()
    tool_list = cast("list[Any]", tools) if isinstance(tools, list | tuple) else [tools]
    characters += sum(map(characters_of_json, tool_list))
    if other_options := {name: value for name, value in options.items() if name != "tools" and value is not None}:
        characters += characters_of_json(other_options)
    return -(-characters // CHARACTERS_PER_TOKEN)


def _characters_of(values: Iterable[Any]) -> int:
    count = 0
    pending = [*values]
    while pending:
        value = pending.pop()
        if isinstance(value, Content):
            if value.type in _TEXTS:
                count += len(value.text or "")
            elif value.type in _FILES:
                count += _tokens_of_file(value) * CHARACTERS_PER_TOKEN
            else:
                pending += [field_value for name in _SENT_FIELDS if (field_value := getattr(value, name))]
                pending.append(value.items or value.result)  # the result repeats the texts of the items
        elif isinstance(value, str):
            count += len(value)
        elif isinstance(value, list | tuple):
            pending += cast("list[Any]", value)
        elif value is not None:
            count += characters_of_json(value)
    return count


def _tokens_of_file(content: Content) -> int:
    uri = content.uri or ""
    if uri[:5].lower() != "data:":
        return MEDIA_TOKENS
    comma = uri.find(",")
    kind, *parameters = uri[5:comma].lower().split(";")
    size = len(uri) - comma - 1
    if "base64" in parameters:
        size = size * 3 // 4
    media_type = (content.media_type or kind or OCTETS).partition(";")[0].strip().lower()
    if media_type.startswith("image/"):
        return MEDIA_TOKENS
    if _TEXT_FILE.fullmatch(media_type) or _TEXT_FILE.fullmatch(media_type_of_name(content.name) or ""):
        return -(-size // CHARACTERS_PER_TOKEN)
    return MEDIA_TOKENS + size // _BYTES_PER_TOKEN


def characters_of_json(value: Any) -> int:
    """Count the characters of a value as JSON; 0 for one that has none."""
    try:
        return len(json.dumps(value, ensure_ascii=False, skipkeys=True, default=_plain))
    except (TypeError, ValueError, RecursionError):  # cannot be sent either
        return 0


def _plain(value: Any) -> Any:
    """Return what a client sends of an object; None for one that only the client knows."""
    if isinstance(value, FunctionTool):
        return value.to_json_schema_spec()
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else None
