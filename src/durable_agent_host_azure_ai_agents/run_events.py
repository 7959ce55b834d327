"""The events of a run as updates of the framework.

A `RunReader` reads the events of one model call in order, either live or made from a run's steps by `run_call`, and
produces the same contents for both. Its state between events: the emitted calls, their blocks where the service
finishes them in several events, the last message until its step ends.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from agent_framework import ChatResponseUpdate, Content, FinishReason

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.providers.adapted_client import ItemUpdate
from durable_agent_host.providers.neutral_contents import approval_request, as_objects
from durable_agent_host_azure_ai_agents.errors import RunEndedError
from durable_agent_host_azure_ai_agents.thread_contents import (
    Json,
    call_contents,
    code_call,
    find_call_kind,
    function_call,
    merge_call,
    message_contents,
    parse_annotations,
    read_payload,
    search_call,
    step_carrier,
    with_call,
    with_message,
)

FINAL_STEP_STATUSES: Final = frozenset({"completed", "failed", "cancelled", "expired"})
FAILED_STATUSES: Final = frozenset({"failed", "cancelled", "expired"})
FINAL_STATUSES: Final = frozenset({"completed", "incomplete", "requires_action", *FAILED_STATUSES})
"""Statuses in which a run does not wait for the service."""

_RUN = "thread.run."
_STEP = "thread.run.step."
_MESSAGE = "thread.message."
_REASONS: Final = {"max_completion_tokens": "length", "max_prompt_tokens": "length", "content_filter": "content_filter"}


class AgentsEvent(NamedTuple):
    """An event of the service.

    Attributes:
        name: of the event.
        data: from the service, unchanged.
    """

    name: str
    data: Any


def complete_item(contents: list[Content], item: Json | None) -> list[Content]:
    """Make an item's contents from its finished block."""
    if item is None:
        return contents
    step: Json = item.get("step") or {}
    if "message" in item:
        return with_message(message_contents(item["message"]), item["message"], step)
    if "call" in item:
        return with_call(call_contents(item["call"]), item["call"], step)
    return [step_carrier(step)]


@dataclass
class RunReader:
    """Reads the events of one model call.

    Attributes:
        thread_id: of the conversation.
        run_id: once the service has sent it.
        completed_call_ids: calls with results sent by this model call; of their steps only new data is emitted.
        status: of the run, as last reported.
    """

    thread_id: str
    run_id: str = ""
    completed_call_ids: frozenset[str] = frozenset()
    status: str = ""
    _emitted_keys: set[str] = field(default_factory=set[str])
    _calls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    _steps: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    _messages: dict[str, Json] = field(default_factory=dict[str, Json])

    def read(self, name: str, data: Any) -> Iterator[ChatResponseUpdate]:
        """Return the updates of an event.

        Raises:
            RunEndedError: the event reports that the run has failed.
        """
        if name == "error":
            error = object_at(value_at(data, "error") or data) or {"message": str(data)}
            raise RunEndedError("failed", error, self.run_id, has_acted=bool(self.completed_call_ids))
        if not isinstance(data, Mapping):
            yield self._update(name, data, None)
            return
        event = cast("Json", data)
        if name == f"{_STEP}delta":
            yield from self._read_step_delta(name, event)
        elif name.startswith(_STEP):
            yield from self._read_step(name, event)
        elif name.startswith(_RUN):
            yield from self._read_run(name, event)
        elif name == f"{_MESSAGE}delta":
            yield from self._read_message_delta(name, event)
        elif name.startswith(_MESSAGE):
            yield from self._read_message(name, event)
        else:
            yield self._update(name, event, None)

    def read_ending(self, run: Json) -> None:
        """Raise if a run has failed.

        Raises:
            RunEndedError: it has failed, has expired or was cancelled.
        """
        status = str(run.get("status"))
        if status in FAILED_STATUSES:
            error = object_at(run, "last_error")
            raise RunEndedError(
                status, error, str(run.get("id") or self.run_id), has_acted=bool(self.completed_call_ids)
            )

    @property
    def lacks_outputs(self) -> bool:
        """Whether code has run with unknown output: streams omit it."""
        return any(_is_silent(call) for call in self._calls.values())

    def read_outputs(self, step: Json) -> Iterator[ChatResponseUpdate]:
        """Emit the output of code, from a listed step."""
        for index, call in enumerate(as_objects(value_at(step, "step_details", "tool_calls"))):
            call_key = _call_key(step, index)
            if call_key in self._calls and _is_silent(self._calls[call_key]) and not _is_silent(call):
                yield self._finish("thread.run.step.completed", call_key, dict(call))

    def _update(
        self, name: str, data: Any, part: ItemPart | None, *contents: Content, **more: Any
    ) -> ChatResponseUpdate:
        return ChatResponseUpdate(
            role="assistant",
            contents=list(contents),
            conversation_id=self.thread_id,
            response_id=self.run_id or None,
            raw_representation=ItemUpdate(part, AgentsEvent(name, data)),
            **more,
        )

    def _read_message_delta(self, name: str, event: Json) -> Iterator[ChatResponseUpdate]:
        message_id = str(event.get("id"))
        self._emitted_keys.add(message_id)
        for part in as_objects(value_at(event, "delta", "content")):
            text = value_at(part, "text", "value")
            if not isinstance(text, str):
                continue  # it is in the finished message
            content = Content.from_text(text)
            content.annotations = parse_annotations(value_at(part, "text", "annotations")) or None
            yield self._update(name, part, ItemPart(message_id, str(part.get("index", 0))), content)

    def _read_message(self, name: str, event: Json) -> Iterator[ChatResponseUpdate]:
        message_id = str(event.get("id"))
        if name not in {f"{_MESSAGE}completed", f"{_MESSAGE}incomplete"}:
            yield self._update(name, event, None)
            return
        self._messages[message_id] = event
        contents = [] if message_id in self._emitted_keys else message_contents(event)
        self._emitted_keys.add(message_id)
        part = ItemPart(message_id, item={"id": message_id, "message": event})
        yield self._update(name, event, part, *contents)

    def _read_step_delta(self, name: str, event: Json) -> Iterator[ChatResponseUpdate]:
        for call in as_objects(value_at(event, "delta", "step_details", "tool_calls")):
            call_key = _call_key(event, call.get("index", 0))
            if (finished_call := self._calls.get(call_key)) is not None:  # its output arrives after its end
                yield self._finish(name, call_key, merge_call(finished_call, call))
                continue
            yield from self._read_call_delta(name, call_key, call)

    def _read_call_delta(self, name: str, call_key: str, call: Json) -> Iterator[ChatResponseUpdate]:
        row = find_call_kind(call)
        payload = read_payload(call, row)
        if call.get("id"):
            self._steps.setdefault(call_key, {})["id"] = call["id"]
        call_id = self._steps.get(call_key, {}).get("id")
        content: Content | None = None
        match row.family:
            case "code":
                content = code_call(call_id, payload.get(row.argument))
            case "function":
                content = function_call(call_id, payload.get("name"), payload.get(row.argument) or "")
            case "search" if call_key not in self._emitted_keys:
                content = search_call({**call, "id": call_id}, {})
            case _:
                pass  # a server's call may still need an approval
        if content is None:
            yield self._update(name, call, None)
            return
        self._emitted_keys.add(call_key)
        yield self._update(name, call, ItemPart(call_key), content)

    def _read_step(self, name: str, event: Json) -> Iterator[ChatResponseUpdate]:
        if event.get("status") not in FINAL_STEP_STATUSES and name.removeprefix(_STEP) not in FINAL_STEP_STATUSES:
            yield self._update(name, event, None)
            return
        details = event.get("step_details")
        step = {key: value for key, value in event.items() if key != "step_details"}
        calls: Any = value_at(details, "tool_calls")
        message_id = value_at(details, "message_creation", "message_id")
        if _are_calls(calls) and value_at(details, "type") == "tool_calls":
            yield from self._read_calls(name, event, step, cast("list[Any]", calls))
        elif message_id in self._messages:
            item = {"id": message_id, "message": self._messages[message_id], "step": step}
            yield self._update(name, event, ItemPart(str(message_id), item=item))
        else:
            item = {"id": event.get("id"), "step": event}
            part = ItemPart(str(event.get("id")), item=item)
            yield self._update(name, event, part, Content.from_text(""))

    def _read_calls(
        self, name: str, event: Json, step: dict[str, Any], calls: list[Any]
    ) -> Iterator[ChatResponseUpdate]:
        """Emit finished calls; functions were emitted when called, so only their step is emitted."""
        function_calls = [call for call in calls if value_at(call, "type") == "function"]
        if function_calls:
            call_refs = [{"id": value_at(call, "id"), "type": value_at(call, "type")} for call in calls]
            step_without_payloads = {**step, "step_details": {**event["step_details"], "tool_calls": call_refs}}
            part = ItemPart(str(event.get("id")), item={"id": event.get("id"), "step": step_without_payloads})
            yield self._update(name, event, part, Content.from_text(""))
            step = {"id": event.get("id")}
        for index, call in enumerate(calls):
            if call in function_calls:
                continue
            call_key = _call_key(event, index)
            self._steps[call_key] = {**self._steps.get(call_key, {}), "step": step}
            yield self._finish(name, call_key, dict(cast("Json", call)))
            step = {"id": event.get("id")}

    def _finish(self, name: str, call_key: str, call: dict[str, Any]) -> ChatResponseUpdate:
        """Emit a finished call, again when its output arrives later."""
        self._calls[call_key] = call
        step: dict[str, Any] = self._steps.get(call_key, {}).get("step") or {}
        item = {"id": call.get("id"), "call": call, "step": step}
        contents = call_contents(call)
        if call_key in self._emitted_keys:
            contents = contents[1:]
        self._emitted_keys.add(call_key)
        return self._update(name, call, ItemPart(call_key, item=item), *contents)

    def _read_run(self, name: str, run: Json) -> Iterator[ChatResponseUpdate]:
        self.run_id = str(run.get("id") or self.run_id)
        self.status = str(run.get("status") or name.removeprefix(_RUN))
        self.read_ending(run)
        if self.status == "requires_action":
            yield from self._read_action(name, run)
            return
        if self.status not in FINAL_STATUSES:
            token = {"thread_id": self.thread_id, "run_id": self.run_id}
            yield self._update(name, run, None, continuation_token=cast("Any", token))
            return
        contents = _usage_contents(run)
        reason: FinishReason | str = "stop"
        if self.status == "incomplete":
            detail = str(value_at(run, "incomplete_details", "reason") or "unknown")
            reason = _REASONS.get(detail, detail)
        yield self._update(name, run, None, *contents, finish_reason=cast("Any", reason), model=run.get("model"))

    def _read_action(self, name: str, run: Json) -> Iterator[ChatResponseUpdate]:
        action = object_at(run, "required_action")
        keys_by_call_id = {entry.get("id"): call_key for call_key, entry in self._steps.items()}
        calls: Any = value_at(action, str(action.get("type")), "tool_calls")
        if not _are_calls(calls):
            raise ProviderError(
                f"the run {self.run_id} waits for {action.get('type')!r}, which the client cannot give: ask "
                "without the tool that needs it",
                retryable=False,
            )
        for call in cast("list[Json]", calls):
            call_id = str(call.get("id"))
            if action.get("type") == "submit_tool_approval":
                yield self._update(name, call, None, approval_request(call))
                continue
            call_key = keys_by_call_id.get(call_id, call_id)
            item = {"id": call_id, "call": {**call, "run_id": self.run_id}, "step": {}}
            contents = [] if call_key in self._emitted_keys else call_contents(call)
            yield self._update(name, call, ItemPart(call_key, item=item), *contents)
        more: Any = {"finish_reason": "tool_calls", "model": run.get("model")}
        yield self._update(name, run, None, *_usage_contents(run), **more)


def _usage_contents(run: Json) -> list[Content]:
    usage = run.get("usage")
    if not isinstance(usage, Mapping):
        return []
    usage_fields = cast("Json", usage)
    names = {"input_token_count": "prompt_tokens", "output_token_count": "completion_tokens"}
    details: dict[str, Any] = {
        framework_name: usage_fields.get(service_name) for framework_name, service_name in names.items()
    }
    details["total_token_count"] = usage_fields.get("total_tokens")
    details["cache_read_input_token_count"] = value_at(usage_fields, "prompt_token_details", "cached_tokens")
    details["reasoning_output_token_count"] = value_at(usage_fields, "completion_tokens_details", "reasoning_tokens")
    return [Content.from_usage(cast("Any", {name: n for name, n in details.items() if isinstance(n, int)}))]


def _is_silent(call: Json) -> bool:
    return call.get("type") == "code_interpreter" and not value_at(call, "code_interpreter", "outputs")


def _are_calls(calls: Any) -> bool:
    return bool(calls) and as_objects(calls) == calls


def _call_key(event: Json, index: Any) -> str:
    return f"{event.get('id')}:{index}"
