"""The outcome of a turn for each ending, with the entries to store or the reason why there are none."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any, Final, Literal, cast

from agent_framework import AgentResponse, Content, Message, UsageDetails, add_usage_details

from durable_agent_host.agent.durable_session import DurableSession, TranscriptProvider
from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.run_messages import effective_request
from durable_agent_host.agent.run_result import Postponed
from durable_agent_host.codec.content import decode_usage, encode_agent_session
from durable_agent_host.codec.extension_data import extension_of, with_extension
from durable_agent_host.codec.journal_entry import decode_model_response, decode_tool_result, tool_result_text
from durable_agent_host.codec.message import (
    encode_request_entry,
    encode_response_entry,
    is_structured,
    with_replies,
)
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.errors import (
    CorruptStateError,
    InvalidAnswerError,
    LogError,
    ProviderError,
    TurnCancelledError,
    TurnError,
)
from durable_agent_host.model.call_path import AGENT_RUN, CallPath
from durable_agent_host.model.ending import CALLS_NOT_RUN, AnswerEnd, end_of_answer
from durable_agent_host.model.provider_item import SERVICE_TIER, STAMP
from durable_agent_host.model.session import WORKFLOW_STATE
from durable_agent_host.model.turn import TurnOutcome, TurnRequest, TurnStats
from durable_agent_host.segments.turn_data_storage import redact_in_thread
from durable_agent_host.session.transcript import close_calls, finished_part
from durable_agent_host.stream.hosted_calls import HOSTED_CONTENTS
from durable_agent_host.stream.response_messages import response_messages
from durable_agent_host.turn.error_texts import error_details
from durable_agent_host.turn.turn_events import SEPARATOR
from durable_agent_host.turn.turn_report import bounded_name
from durable_agent_host.turn.turn_wire import encode_response_messages
from durable_agent_host.turn.waiting_status import shortened_calls
from durable_agent_host.turn_log.journal import JournalState

CANCELLED: Final = "durable_agent_host.cancelled"
"""Key in the ``additional_properties`` of a stored response: the turn was cancelled at this point."""
FAILED: Final = "durable_agent_host.failed"
"""Key in the ``additional_properties`` of a stored response and of its last message: the turn failed at this point."""

_NOT_RUN: Final = "Error: The turn {end} before this call; the tool did not run."
_EFFECTS: Final = HOSTED_CONTENTS | {"function_result"}
"""Types of contents of a finished model call, or of an agent without a journal, which show that a tool has run."""
_TOOL_FAILED: Final = "Error: Function failed."
_WAITING_CHARACTERS: Final = 8 * 1024
"""Of the waiting calls in an outcome, as JSON."""
_CUT_OFF: Final = (
    "Error: The turn {end} while the tool was running; the outcome is not known, and the call may or may not have "
    "taken effect."
)
_AGENT_CUT_OFF: Final = "Error: The turn {end} while the agent was running. What its tools did:"
_DESCRIBED: Final = 1000
"""Maximum characters of the arguments, and of the result, of a call that is described in the result of another."""
_RESUME: Final = ". POST <turn_url>/resume, or the same Idempotency-Key, continues this turn"
_FAILED: Final = "This turn failed here, and has no answer. The reason: {reason}"


def utc_now() -> str:
    """Return the time: UTC, ISO-8601 with microseconds."""
    return datetime.now(UTC).isoformat()


def rebuild_error(error: Mapping[str, Any]) -> TurnError:
    """Recreate an exception from a turn's stored error."""
    message = str(error.get("message"))
    if "retryable" in error:
        return ProviderError(message, retryable=bool(error["retryable"]))
    return TurnError(message)


async def build_completed(run: CurrentRun, response: AgentResponse[Any]) -> TurnOutcome:
    """Build the outcome of a turn whose agent has answered.

    Returns:
        An outcome with the entries to append.

    Raises:
        InvalidAnswerError: the answer does not match the requested response format, or the answer or the agent's
            session holds a value that JSON cannot represent.
    """
    for check in [part.check_answer for part in run.parts if part.check_answer is not None]:
        await check(response)
    if run.journal.recorded.rejections:  # the service's own record of the conversation has it
        run.session.service_session_id = None
    try:
        outcome = await _with_entries(run, response, "completed")
        return replace(outcome, overlay=await overlay_after(run, response.messages))
    except CorruptStateError as error:  # from what would be stored; the session is unchanged
        raise InvalidAnswerError(f"the agent's answer cannot be stored: {error}") from error


async def build_cancelled(run: CurrentRun, records: JournalState) -> TurnOutcome:
    """Build the outcome of a cancelled turn: its output so far, as a valid transcript.

    The model's service, or a workflow, does not know what was cut off, so the next turn starts from the transcript.

    Returns:
        An outcome with the entries to append, the response marked.
    """
    error = TurnCancelledError("the turn was cancelled; what it had produced is part of the conversation")
    return replace(await _build_cut_off(run, records, "cancelled"), error=error_details(error))


def happened_outside(run: CurrentRun, records: JournalState) -> bool:
    """Return whether a turn has had an effect outside of the host, so that the conversation must tell of it.

    A tool has finished or is in doubt, a pending call has its answer, or a finished model call has run a hosted tool.
    Of an agent without a journal, its output tells, and that an earlier attempt was running it.
    """
    started_calls = (call.start for path, call in records.tools.items() if path != AGENT_RUN)
    if records.replied_call_ids or any(entry is not None and not entry.is_agent for entry in started_calls):
        return True
    responses = [decode_model_response(response) for response in records.responses.values()]
    if not run.agent.has_journal:
        agent_run = run.journal.recorded.tools.get(AGENT_RUN)
        if agent_run is not None and agent_run.starts:
            return True
        responses.append(cast("Any", run.output.response()))
    contents = [content for response in responses for message in response.messages for content in message.contents]
    return any(content.hosted or content.informational_only or content.type in _EFFECTS for content in contents)


async def build_failed_with_entries(run: CurrentRun, records: JournalState, failed_outcome: TurnOutcome) -> TurnOutcome:
    """Build the outcome of a failed turn with what it has done, and a last message with the reason.

    Returns:
        An outcome with the entries to append, the response and its last message marked; its error says how to go on.
    """
    error = dict(failed_outcome.error or {})
    reason = str(error.get("message"))
    outcome = await _build_cut_off(run, records, "failed", reason)
    if error.get("retryable") and run.start.redactor is None:  # a redacted turn's log is deleted
        error["message"] = reason + _RESUME
    return replace(outcome, text="", messages=(), error=error, overlay=failed_outcome.overlay)


async def _build_cut_off(
    run: CurrentRun, records: JournalState, status: Literal["cancelled", "failed"], reason: str = ""
) -> TurnOutcome:
    response, cut_off = run.output.responses({path.position for path in records.responses if not path.is_nested})
    finished_messages = finished_part(cut_off.messages)
    response.messages += finished_messages if run.start.redactor is None else _without_open_text(finished_messages)
    model_call = run.journal.current_call
    build_result = partial(_build_missing_result, records, "failed" if status == "failed" else "was cancelled")
    response.messages = close_calls(
        response.messages, lambda call_id, n: build_result(model_call.tool_call(call_id, n))
    )
    mark = CANCELLED
    if status == "failed":
        mark = FAILED
        response.messages += _messages_beyond(run, records, build_result)
        text = _FAILED.format(reason=reason)
        response.messages.append(Message("assistant", [text], additional_properties={FAILED: True}))
    response.additional_properties = {**(response.additional_properties or {}), mark: True}
    run.session.service_session_id = None
    run.session.state.pop(WORKFLOW_STATE, None)
    return await _with_entries(run, response, status)


def _without_open_text(messages: Sequence[Message]) -> Sequence[Message]:
    """Leave out a text that was cut off, possibly within something that only the whole of it shows to be secret."""
    if not messages or not messages[-1].contents:
        return messages
    *before, last_message = messages
    *contents, content = last_message.contents
    if content.type != "text" or STAMP in content.additional_properties:  # an item with a stamp is complete
        return messages
    shortened_message = copy.copy(last_message)
    shortened_message.contents = contents
    return [*before, shortened_message] if contents else before


def _messages_beyond(
    run: CurrentRun, records: JournalState, build_result: Callable[[CallPath], Content]
) -> list[Message]:
    """Return the messages of finished model calls that a run has not reached before it failed."""
    position = run.journal.position
    messages: list[Message] = []
    for path, response in sorted(records.responses.items(), key=lambda item: item[0].position):
        if not path.is_nested and path.position > position and path not in records.rejections:
            call_messages = decode_model_response(response).messages
            messages += close_calls(
                call_messages, lambda call_id, n, path=path: build_result(path.tool_call(call_id, n))
            )
    return messages


def _build_missing_result(records: JournalState, end: str, path: CallPath) -> Content:
    """Build the result of a call whose result the model has not seen."""
    recorded_call = records.tools.get(path)
    if recorded_call is None:
        return Content.from_function_result(path.call_id, result=_NOT_RUN.format(end=end))
    if recorded_call.finished is None:
        inner_calls = "".join(_describe_calls_within(records, path))
        text = (_AGENT_CUT_OFF if inner_calls else _CUT_OFF).format(end=end) + inner_calls
        return Content.from_function_result(path.call_id, result=text)
    result = recorded_call.finished.result
    if "items" in result:
        return Content.from_function_result(path.call_id, result=decode_tool_result(result))
    return Content.from_function_result(path.call_id, result=_TOOL_FAILED, exception=str(result.get("message", "")))


def _describe_calls_within(records: JournalState, path: CallPath) -> Iterator[str]:
    """Describe the calls that an agent had made in a call which was cut off."""
    for inner_path, call in records.tools.items():
        if call.start is not None and inner_path.steps[: len(path.steps)] == path.steps and inner_path != path:
            end = tool_result_text(call.finished.result) if call.finished is not None else "not known"
            arguments = encode_strict(dict(call.start.arguments))
            yield f"\nCall of {call.start.name} with {arguments[:_DESCRIBED]}: {end[:_DESCRIBED]}"


def usage_of(run: CurrentRun) -> UsageDetails | None:
    """Return the tokens of all model calls of a turn; None without one."""
    usage = run.start.attempt.metrics.usage
    return usage if run.context is None else add_usage_details(usage, run.context.usage)


def build_failed(request: TurnRequest, error: BaseException, *, milliseconds: float = 0.0) -> TurnOutcome:
    """Build the outcome of a failed turn; the conversation is unchanged."""
    return TurnOutcome(
        turn_id=request.turn_id,
        status="failed",
        error=error_details(error),
        stats=TurnStats(agent_milliseconds=milliseconds),
        request_hash=request.request_hash,
        ended_at=utc_now(),
    )


def build_postponed(request: TurnRequest, ending: Postponed, *, milliseconds: float) -> TurnOutcome:
    """Build the outcome of an attempt after which the turn waits; its error says why, and how long."""
    outcome = build_failed(request, ending.error, milliseconds=milliseconds)
    error = {**(outcome.error or {}), "retry_after_seconds": ending.seconds}
    return replace(outcome, status="postponed", error=error)


def without_log(request: TurnRequest, error: LogError) -> TurnOutcome:
    """Build the outcome of a turn that stops because its log cannot be written.

    Returns:
        An outcome without entries, which the session need not record.
    """
    return replace(build_failed(request, error), status="rejected")


async def build_suspended(run: CurrentRun, calls: tuple[Mapping[str, Any], ...]) -> TurnOutcome:
    """Build the outcome of an attempt that waits for answers.

    Returns:
        An outcome with ``pending``, and no entries.
    """
    visible_calls: Sequence[Mapping[str, Any]] = calls
    if (redactor := run.start.redactor) is not None:
        visible_calls = await redact_in_thread(redactor, lambda: [*map(redactor.marked, calls)])
    return TurnOutcome(
        turn_id=run.start.request.turn_id,
        status="suspended",
        pending=shortened_calls(visible_calls, _WAITING_CHARACTERS),
        stats=TurnStats(agent_milliseconds=run.start.milliseconds()),
        request_hash=run.start.request.request_hash,
    )


async def _with_entries(run: CurrentRun, agent_response: AgentResponse[Any], status: Any) -> TurnOutcome:
    ended_at = utc_now()
    request = effective_request(run)
    _hide_exceptions(agent_response)
    served_by = _pop_served_by(run, agent_response)
    if agent_response.additional_properties.pop(CALLS_NOT_RUN, None):  # the service's own record has them
        run.session.service_session_id = None
    if run.agent.has_journal:  # its updates lack calls: of agents within it, before approvals, rejected ones
        agent_response.usage_details = usage_of(run) or agent_response.usage_details
    elif responses := run.journal.recorded.responses:
        # a workflow reports the tokens of some of its agents, as its outputs are chosen
        usages = (decode_usage(response["usage"]) for response in responses.values() if response.get("usage"))
        usages = [*usages, run.start.attempt.metrics.usage_of_failures]
        agent_response.usage_details = reduce(add_usage_details, cast("Iterable[Any]", usages), None)
    stored_request = request
    response = agent_response
    replies = run.start.replies
    call_views = await _describe_replied_calls(run) if replies else {}
    if (redactor := run.start.redactor) is not None:
        stored_request, response, replies = await redact_in_thread(
            redactor,
            lambda: (
                redactor.request(request),
                redactor.response(agent_response),
                {call_id: redactor.marked(answer) for call_id, answer in run.start.replies.items()},
            ),
        )
    end = AnswerEnd()
    if status == "completed":
        end = end_of_answer(response)
        response.finish_reason = cast("Any", end.finish_reason)
    answer = encode_response_entry(request.turn_id, response, created_at=ended_at, model_info=served_by)
    for complete in [part.complete_stored for part in run.parts if part.complete_stored is not None]:
        complete(answer.get("messages") or (), run.session)
    replies = {call_id: {**reply, **call_views.get(call_id, {})} for call_id, reply in replies.items()}
    entries = (encode_request_entry(stored_request), with_replies(answer, replies))
    is_redacted = stored_request is not request or response is not agent_response
    if is_redacted:
        entries = tuple(with_extension(entry, {**extension_of(entry), "redacted": True}) for entry in entries)
    usage = entries[1].get("usage")
    messages = response_messages(response.messages, run.agent.provider.service_files)
    run.session.set_storing_service(run.agent.provider)
    return TurnOutcome(
        turn_id=request.turn_id,
        status=status,
        text=SEPARATOR.join(message["text"] for message in messages),
        messages=encode_response_messages(messages, request.agent),
        finish_reason=end.finish_reason,
        refusal=end.refusal,
        entries=cast("tuple[Mapping[str, Any], ...]", entries),
        agent_session=save_session(run.session),
        usage=decode_usage(usage) if usage else None,
        message_count=run.start.record.session.message_count + len(entries),
        stats=replace(_weigh(run, response), bytes_stored=len(json_bytes_of(entries))),
        request_hash=request.request_hash,
        ended_at=ended_at,
        model_info=served_by or None,
        redacted=is_redacted,
        is_structured=is_structured(answer),
    )


async def _describe_replied_calls(run: CurrentRun) -> dict[str, dict[str, Any]]:
    """Return, by id, what the record of a pending call says beside its answer; arguments are as clients have them."""
    records = await run.start.attempt.read_again()
    request = run.start.request
    requester = {"principal": request.principal, "tenant": request.tenant} if request.principal else None
    paths = {str(path): path for path in records.tools}
    views: dict[str, dict[str, Any]] = {}
    for call_id, call in records.pending_calls.items():
        view = {"kind": call["kind"], "name": call["name"], "askedBy": requester, "askedArguments": call["arguments"]}
        if (path := paths.get(call["path"])) is not None:
            end = records.tools[path].finished
            view["idempotencyKey"] = run.journal.idempotency_key(path)
            view["outcome"] = end.outcome if end else "unknown"
        views[call_id] = view
    return views


def _pop_served_by(run: CurrentRun, response: AgentResponse[Any]) -> dict[str, str]:
    """Return the model and tier that served the last call; remove the tier from the response's properties."""
    properties = dict(response.additional_properties or {})
    tier = properties.pop(SERVICE_TIER, None)
    response.additional_properties = properties
    served_by = {"model": run.output.served_model, "service_tier": tier}
    return {name: bounded_name(str(value)) for name, value in served_by.items() if value}


def _hide_exceptions(response: AgentResponse[Any]) -> None:
    """Replace texts of tools' exceptions by what the model received; agents without a journal give them in full."""
    for content in (content for message in response.messages for content in message.contents):
        if content.type == "function_result" and content.exception and content.exception not in str(content.result):
            content.exception = str(content.result or _TOOL_FAILED)


async def overlay_after(run: CurrentRun, response: Sequence[Message] | None) -> dict[str, Any] | None:
    """Return the session's context after a turn.

    Returns:
        The overlay as stored, empty when the context is the whole record; None when the previous one stays.
    """
    return await run.context.overlay_after(response) if run.context is not None else None


def save_session(agent_session: DurableSession) -> Mapping[str, Any]:
    """Encode the framework's session of a run, without an empty state of our own.

    Raises:
        CorruptStateError: it holds a value that JSON cannot represent.
    """
    if not agent_session.state.get(TranscriptProvider.SOURCE_ID):
        agent_session.state.pop(TranscriptProvider.SOURCE_ID, None)
    return encode_agent_session(agent_session)


def _weigh(run: CurrentRun, response: AgentResponse[Any]) -> TurnStats:
    return TurnStats(
        chunks_streamed=run.output.updates_streamed,
        bytes_streamed=run.output.bytes_streamed,
        contents_stored=sum(len(message.contents) for message in response.messages),
        agent_milliseconds=run.start.milliseconds(),
        calls_refused=len(run.losses),
    )
