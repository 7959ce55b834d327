"""What a model's service has lost of a conversation, can no longer read, or refuses; it is not sent again.

A container in which code ran expires; encrypted reasoning cannot be read after a change of the key, the project or the
endpoint; a field or a file is not what the service takes. All are known after the service has rejected them, and are
stored with the session: expired containers by their names, unreadable payloads by the fingerprint of the last one, as
all before it are unreadable, too, refused fields by their names, files by their fingerprints (`result_files`).
"""

import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.errors import ContextOverflowError, RequestBlockedError
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.client_errors import explain_client_error, rejection_text
from durable_agent_host.providers.services import Service

_EXPIRED: Final = "expired_containers"
_UNREADABLE: Final = "unreadable_until"
_REJECTED_FIELDS: Final = "refused_fields"


@dataclass(frozen=True)
class LossRules:
    """What a service can lose.

    Attributes:
        payloads: the encrypted payloads of a content, or names of them.
        containers: the containers that contents name, for a loss without a name.
        change: a content, and whether it has an unreadable payload → the content to send; called for contents with such
            a payload or an expired container.
    """

    payloads: Callable[[Content], Sequence[str]] = lambda _content: ()
    containers: Callable[[Sequence[Content]], Sequence[str]] = lambda _contents: ()
    change: Callable[[Content, bool], Content] = lambda content, _is_unreadable: content


def apply_losses(
    messages: Sequence[Message],
    stored_losses: Mapping[str, Any],
    new_losses: Iterable[LostState],
    rules: LossRules,
) -> tuple[list[Message], dict[str, Any]]:
    """Change the contents that can no longer be sent.

    Args:
        messages: the conversation.
        stored_losses: this function's previous result.
        new_losses: what the service has rejected since.
        rules: of the service.

    Returns:
        The messages, with copies of the changed ones, and the losses to store with the session.
    """
    contents = [content for message in messages for content in message.contents]
    all_payloads = [payload for content in contents for payload in rules.payloads(content)]
    expired_containers = list[str](stored_losses.get(_EXPIRED) or ())
    last_unreadable: Any = stored_losses.get(_UNREADABLE)
    for loss in new_losses:
        if loss.kind == "container":
            expired_containers += [loss.name] if loss.name else rules.containers(contents)
        elif loss.kind == "reasoning" and all_payloads:
            last_unreadable = fingerprint(all_payloads[-1])
    if not expired_containers and not last_unreadable:
        return list(messages), dict(stored_losses)
    unreadable_count = _count_unreadable(all_payloads, last_unreadable)
    changed_messages: list[Message] = []
    for message in messages:
        changed_contents: list[Content] = []
        for content in message.contents:
            payload_count = len(rules.payloads(content))
            is_unreadable = payload_count > 0 and unreadable_count > 0
            is_expired = content.additional_properties.get("container_id") in expired_containers
            unreadable_count -= payload_count
            changed_contents.append(rules.change(content, is_unreadable) if is_unreadable or is_expired else content)
        changed_messages.append(with_contents(message, changed_contents))
    losses = {_EXPIRED: list(dict.fromkeys(expired_containers)), _UNREADABLE: last_unreadable}
    return changed_messages, {**stored_losses, **{name: value for name, value in losses.items() if value}}


def with_contents(message: Message, contents: list[Content]) -> Message:
    """Return a copy of a message with other contents."""
    clone = copy.copy(message)
    clone.contents = contents
    return clone


def _count_unreadable(payloads: Sequence[str], last_unreadable: Any) -> int:
    names = [fingerprint(payload) for payload in payloads] if last_unreadable else []
    return len(names) - names[::-1].index(last_unreadable) if last_unreadable in names else 0


def fingerprint(payload: str) -> str:
    """Return the name under which a payload or a file is remembered."""
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()[:24]


REJECTED: Final = "durable_agent_host.refused"
"""Key in a message's ``additional_properties``: the fields that its service refuses. Only on copies for one request."""

_FIELD_WORDINGS: Final = tuple(
    re.compile(wording)
    for wording in (
        r"[Pp]lease remove the [`'\"]?(\w+)[`'\"]? from your message",  # DeepSeek R1
        r"property '(?:[\w.]+\.)?(\w+)' is unsupported",  # Groq, Cerebras
        r"\('(\w+)' was unexpected\)",  # Azure, Fireworks
        r"[Uu]nknown (?:parameter|field|name):? ['\"](?:[\w.\[\]]+[.\]])?(\w+)['\"]",  # OpenAI, Google
        r"['\"]extra_forbidden['\"].*?['\"]loc['\"]: ?[\[(][^\])]*['\"](\w+)['\"][\])]",  # Mistral
        r"[Uu]nrecognized request arguments? supplied: (\w+)",  # Azure, older API versions
        r"(?:[\w.]+\.)?(\w+): Extra inputs are not permitted",  # Anthropic, LiteLLM
        r"not permitted, field: '(?:[\w.\[\]]+[.\]])?(\w+)'",  # Fireworks
        r"does not support parameters: \['(\w+)'",  # LiteLLM
        r"extraneous key \[(\w+)\] is not permitted",  # Bedrock
        r"[Uu]nsupported parameter: ['\"](?:[\w.\[\]]+[.\]])?(\w+)['\"]",  # OpenAI
        r"[Aa]rgument not supported(?: on this model)?: (\w+)",  # xAI
        r"\b(parallel_tool_calls|store|stream_options|include|strict|name)\b\W+(?:is|are) not (?:supported|allowed)",
    )
)
_NEEDED: Final = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "id", "type", "function", "arguments", "call_id", "output"}
    | {"model", "messages", "input", "tools", "tool_choice", "stream", "response_format", "text", "image_url"}
)
_FILE: Final = re.compile(
    r"\bimages?\b|image_|\baudio|input_audio|\bpdf\b|file_data|input_file"
    r"|inline_data|\bmime.?type|media_type|document has no pages",  # Gemini, Anthropic
    re.IGNORECASE,
)
_UNEXPLAINED: Final = "contains an invalid argument"
"""All that Gemini says of some pictures (google-gemini/gemini-cli#14838)."""


def find_refusal(error: BaseException) -> LostState | None:
    """Return what a service refuses in the request that it rejected.

    Returns:
        ``field`` with its name; ``files`` when the reason can be a file; None when the request was rejected for another
        reason.
    """
    reason = explain_client_error(error)
    text = rejection_text(error, {400, 422})
    is_explained = isinstance(reason, ContextOverflowError | RequestBlockedError)
    if reason is None or reason.retryable or is_explained or not text:
        return None
    names = (match[1] for wording in _FIELD_WORDINGS for match in wording.finditer(text))
    name = next((name for name in names if name not in _NEEDED), None)
    if name is not None:
        return LostState("field", {"include_usage": "stream_options"}.get(name, name))
    is_file = not reason.is_client_rejected and (_FILE.search(text) or _UNEXPLAINED in text)
    return LostState("files") if is_file else None


def mark_refusals(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark messages with what the service refuses, and return what to store of it with the session."""
    fields = [*stored_losses.get(_REJECTED_FIELDS, ()), *(loss.name for loss in new_losses if loss.kind == "field")]
    if not fields:
        return list(messages), dict(stored_losses)
    names = list(dict.fromkeys(fields))
    marked_messages: list[Message] = []
    for message in messages:
        clone = copy.copy(message)
        clone.additional_properties = {**message.additional_properties, REJECTED: names}
        marked_messages.append(clone)
    return marked_messages, {**stored_losses, _REJECTED_FIELDS: names}


def rules_for(messages: Sequence[Message], service: Service) -> Service:
    """Return the row of a service with what it has refused in this session."""
    marks = (message.additional_properties.get(REJECTED) for message in messages)
    names: Sequence[str] = next(filter(None, marks), ())
    return replace(service, rejected_fields=service.rejected_fields | set(names)) if names else service


_MAX_TOKENS: Final = "max_completion_tokens"


def accepted_request_options(request_options: Mapping[str, Any], service: Service) -> dict[str, Any]:
    """Remove the fields that a service refuses from the options of a request and from its tools."""
    rejected_fields = service.rejected_fields
    accepted_options = {name: value for name, value in request_options.items() if name not in rejected_fields}
    if _MAX_TOKENS in request_options and _MAX_TOKENS in rejected_fields:
        accepted_options["max_tokens"] = request_options[_MAX_TOKENS]
    if rejected_fields and (tools := cast("list[Any]", accepted_options.get("tools"))):
        accepted_options["tools"] = [_without_fields(tool, rejected_fields - {"name"}) for tool in tools]
    return accepted_options


def _without_fields(tool: Any, rejected_fields: AbstractSet[str]) -> Any:
    if not isinstance(tool, Mapping):
        return tool
    fields = {name: value for name, value in cast("Mapping[str, Any]", tool).items() if name not in rejected_fields}
    if "function" in fields:
        fields["function"] = _without_fields(fields["function"], rejected_fields)
    return fields
