"""What a model's service has lost of a conversation, can no longer read, or refuses; it is not sent again.

A container in which code ran expires; encrypted reasoning cannot be read after a change of the key, the project or the
endpoint; a field or the form of a request is not what the service takes. All are known after the service has rejected
them, and are stored with the session: expired containers by their names, unreadable payloads by the fingerprint of the
last one, as all before it are unreadable, too, refused fields by their names, files by their fingerprints
(`result_files`).
"""

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.agent.retry_classification import causes_of
from durable_agent_host.errors import ContextOverflowError, RequestBlockedError
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.client_errors import explain_client_error, rejection_text
from durable_agent_host.providers.services import Service, strictest_at, tighten

_EXPIRED: Final = "expired_containers"
_UNREADABLE: Final = "unreadable_until"
_REJECTED_FIELDS: Final = "refused_fields"
_REJECTED_FORM: Final = "refused_form"


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
        elif loss.kind in {"reasoning", "content"} and loss.name != "file" and all_payloads:
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
"""Key in a message's ``additional_properties``: what its service refuses. Only on copies for one request."""

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
WriteRequest = Callable[[dict[str, Any], Service], dict[str, Any]]

_NEEDED: Final = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "id", "type", "function", "arguments", "call_id", "output"}
    | {"model", "messages", "input", "tools", "tool_choice", "stream", "response_format", "text", "image_url"}
)
_NOT_THE_FORM: Final = re.compile(
    r"\btokens\b|filtered|moderation|safety|blocked|polic(y|ies)"
    r"|temperature|top_p|top_k|penalty|max_\w*tokens|decimal|reasoning.?effort",
    re.IGNORECASE,
)


_FILE: Final = re.compile(
    r"\bimages?\b|image_|\baudio|input_audio|\bpdf\b|file_data|input_file"
    r"|inline_data|\bmime.?type|media_type|document has no pages",  # Gemini, Anthropic
    re.IGNORECASE,
)
_UNEXPLAINED: Final = "contains an invalid argument"
"""All that Gemini says of some pictures (google-gemini/gemini-cli#14838)."""


def find_refusal(error: BaseException, write_request: WriteRequest | None = None) -> LostState | None:
    """Return what a service refuses in the request that it rejected.

    Args:
        error: of the model call.
        write_request: the body of a request, and a row → the body in the form of that row; without it, only fields and
            files are found.

    Returns:
        ``field`` with its name; ``form`` when the reason can be the form of the messages; ``content`` when it can be a
        file, or the request was in the strictest form already; None when the request was rejected for another reason:
        the key, the model, a filter, its length, an option of the app.
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
    if reason.is_client_rejected or _NOT_THE_FORM.search(text):
        return None
    if write_request is None:
        return LostState("content", "file") if _FILE.search(text) or _UNEXPLAINED in text else None
    has_form = _can_tighten(error, write_request)
    if _FILE.search(text):
        return LostState("content", "form" if has_form else "")
    return LostState("form" if has_form else "content")


def _can_tighten(error: BaseException, write_request: WriteRequest) -> bool:
    """Return whether the strictest form of the request is another one than the service has rejected."""
    requests = (vars(cause).get("request") for cause in causes_of(error))
    if (request := next(filter(None, requests), None)) is None:
        return True
    body = json.loads(request.content)
    return write_request(body, strictest_at(request.url)) != body


def mark_refusals(
    messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark messages with what the service refuses, and return what to store of it with the session."""
    losses = list(new_losses)
    fields = [*stored_losses.get(_REJECTED_FIELDS, ()), *(loss.name for loss in losses if loss.kind == "field")]
    is_form_rejected = bool(stored_losses.get(_REJECTED_FORM)) or any(loss.kind == "form" for loss in losses)
    if not fields and not is_form_rejected:
        return list(messages), dict(stored_losses)
    refusals: dict[str, Any] = {_REJECTED_FIELDS: list(dict.fromkeys(fields))} if fields else {}
    refusals |= {_REJECTED_FORM: True} if is_form_rejected else {}
    marked_messages: list[Message] = []
    for message in messages:
        clone = copy.copy(message)
        clone.additional_properties = {**message.additional_properties, REJECTED: refusals}
        marked_messages.append(clone)
    return marked_messages, {**stored_losses, **refusals}


def rules_for(messages: Sequence[Message], service: Service) -> Service:
    """Return the row of a service with what it has refused in this session."""
    marks = (message.additional_properties.get(REJECTED) for message in messages)
    if (refusals := cast("dict[str, Any] | None", next(filter(None, marks), None))) is None:
        return service
    return tighten(service, refusals.get(_REJECTED_FIELDS, ()), is_strictest=bool(refusals.get(_REJECTED_FORM)))


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
