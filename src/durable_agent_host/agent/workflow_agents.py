"""Agents that are workflows: built anew for every run, with their state carried in the session.

Theory of operation. A workflow of the framework keeps conversations, shared state and open questions in its executors,
so one workflow is one conversation, and two sessions must never share it. The app gives a function that builds the
agent; each run gets a new one. The workflow's state is the framework's checkpoint: taken when a run ends, carried in
the state of the agent session, committed with the turn, and restored into the workflow of the next run. Questions of
the workflow are pending calls (`durable_agent_host.agent.workflow_questions`); one that nobody has answered in time
stays in the state, and the session's next message answers it.

Group chats, Magentic teams and hand-offs end, and their executors would take no further message, or end again with
their next word. Where no question is open, the next message begins such a workflow anew: its rounds start at 0, and
only what is said from then on can end it. Its members keep what they know.
"""

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, cast

from agent_framework import (
    AgentResponseUpdate,
    AgentSession,
    Content,
    FunctionExecutor,
    Message,
    RawAgent,
    SupportsAgentRun,
    Workflow,
    WorkflowAgent,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
)
from pydantic import TypeAdapter

from durable_agent_host.codec.content import plain_json
from durable_agent_host.errors import CorruptStateError, InvalidAnswerError, RegistrationError, RequestError, TurnError
from durable_agent_host.model.session import WORKFLOW_STATE

AgentSource = SupportsAgentRun | Callable[[], SupportsAgentRun]
"""An agent, or a function that builds a new one at each call."""

_LOGGER = logging.getLogger(__name__)
_TYPES: Final = frozenset({"types:GenericAlias"})
"""Types that the framework writes into a hand-off's checkpoint, and does not read back by itself."""
_EARLIER: Final = "durable_agent_host.earlier"
"""Key in a message's ``additional_properties``: it is older than the run of the workflow, and cannot end it."""
_HISTORY: Final = "_attribution"
"""The framework's key for a message that a history provider has added."""


def build_agent(source: AgentSource) -> SupportsAgentRun:
    """Return the agent of a source, checked for registration.

    Raises:
        RegistrationError: it is or uses a workflow that all sessions would share, or the function returns no agent.
    """
    is_no_agent = not hasattr(source, "run") and (hasattr(source, "get_response") or not callable(source))
    if is_no_agent or isinstance(source, type | Workflow):
        is_client = hasattr(source, "get_response")
        fix = "a chat client: write Agent(client, name='Helper')" if is_client else "no agent: write Agent(…)"
        raise RegistrationError(f"agents has a {type(source).__name__}, which is {fix}")
    if (factory := factory_of(source)) is None:
        agent = cast("SupportsAgentRun", source)
        if holders := list(_list_state_holders(agent, set())):
            relation = "is a workflow" if _find_workflow(agent) is holders[0] else "uses a workflow"
            raise RegistrationError(
                f"agent {agent.name!r} {relation}, which keeps its conversation in itself, so that all sessions would "
                "share it: give a function that builds the agent, as in agents=[make_agent], where make_agent() calls "
                "the workflow's builder, build() and as_agent(), and returns a new agent each time"
            )
        return agent
    first = factory()
    second = factory()
    if not hasattr(first, "run"):
        raise RegistrationError(
            f"{_format_name(source)} returned {type(first).__name__}, which is no agent: return an agent of the "
            "framework"
        )
    first_holders = list(_list_state_holders(first, set()))
    second_ids = {id(holder) for holder in _list_state_holders(second, set())}
    if shared_types := sorted({type(holder).__name__ for holder in first_holders if id(holder) in second_ids}):
        raise RegistrationError(
            f"{_format_name(source)} returned two agents named {first.name!r} that share {', '.join(shared_types)}, in "
            "which one session would see another's conversation: create everything but plain agents and chat clients "
            "inside it"
        )
    return first


def factory_of(source: AgentSource) -> Callable[[], SupportsAgentRun] | None:
    """Return the function that builds an agent; None for an agent."""
    return None if hasattr(source, "run") else cast("Callable[[], SupportsAgentRun]", source)


def _format_name(source: object) -> str:
    return f"the function {getattr(source, '__qualname__', source)!r}"


def _find_workflow(agent: object) -> Any:
    """Return the workflow that an agent wraps: graph or functional."""
    return getattr(agent, "_workflow", None) if type(agent).__module__.startswith("agent_framework.") else None


def _list_state_holders(agent: object, seen: set[int]) -> Iterator[object]:
    """List the objects in which an agent's workflow, and those that it uses, keep a conversation."""
    if id(agent) in seen:
        return
    seen.add(id(agent))
    if isinstance(agent, RawAgent):
        for tool in cast("Any", agent).default_options.get("tools") or ():
            for cell in getattr(getattr(tool, "func", None), "__closure__", None) or ():  # from an agent's `as_tool`
                yield from _list_state_holders(_contents(cell), seen)
    elif (workflow := _find_workflow(agent)) is not None:
        yield workflow
        if isinstance(workflow, Workflow):
            yield from _list_workflow_holders(workflow, seen)


def _contents(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def _list_workflow_holders(workflow: Workflow, seen: set[int]) -> Iterator[object]:
    for executor in workflow.executors.values():
        if isinstance(executor, FunctionExecutor):
            continue  # has no state
        yield executor
        for value in vars(executor).values():
            if isinstance(value, Workflow):
                yield value
                yield from _list_workflow_holders(value, seen)
            elif isinstance(value, AgentSession) or callable(getattr(value, "on_checkpoint_save", None)):
                yield value
            else:
                yield from _list_state_holders(value, seen)


class HostedWorkflow:
    """The agent of one run, made of a workflow that was built for it.

    Args:
        agent: new, with the stored conversation as its history.

    Attributes:
        requests: the questions of the workflow that have no answer, by their ids, once it has run.
        responses: the answers with which it continues within a turn; None when the turn's message starts it.
    """

    def __init__(self, agent: WorkflowAgent) -> None:
        self.requests: Mapping[str, WorkflowEvent[Any]] = {}
        self.responses: Sequence[Content] | None = None
        self._agent = agent

    def read_requests(self, session: AgentSession) -> Mapping[str, WorkflowEvent[Any]]:
        """Return the questions with which the workflow has stopped."""
        return _decode(session.state[WORKFLOW_STATE]).pending_request_info_events

    def restores(self, session: AgentSession) -> bool:
        """Return whether the workflow continues from an earlier turn's state, so that it needs no transcript.

        Returns:
            True when there is usable state.
        """
        if WORKFLOW_STATE not in session.state:
            return False
        try:
            checkpoint = _decode(session.state[WORKFLOW_STATE])
        except (WorkflowCheckpointException, ValueError, TypeError) as error:
            _LOGGER.warning("session %s: its workflow's state cannot be read (%s)", session.session_id, error)
        else:
            if checkpoint.graph_signature_hash == self._agent.workflow.graph_signature_hash:
                return True
            _LOGGER.warning("session %s: workflow definition changed", session.session_id)
        _LOGGER.warning("session %s: resuming from the stored transcript", session.session_id)
        del session.state[WORKFLOW_STATE]
        return False

    def run(
        self, messages: Sequence[Message], *, stream: bool, session: AgentSession, options: Any = None
    ) -> AsyncGenerator[AgentResponseUpdate]:
        """Run the workflow, and store its state in the session.

        Raises:
            TurnError: options were given.
        """
        del stream
        if options:
            raise TurnError(
                f"agent {self._agent.name!r} is a workflow, which takes no {', '.join(sorted(options))}: "
                "leave it out, or set it at the agents of the workflow"
            )
        return self._updates(list(messages), session)

    async def _updates(self, messages: list[Message], session: AgentSession) -> AsyncGenerator[AgentResponseUpdate]:
        storage = _Latest()
        arguments: dict[str, Any] = {"checkpoint_storage": storage}
        for holder in _list_state_holders(self._agent, set()):
            _adapt_orchestration(holder)
        _mark_earlier(getattr(session, "transcript", ()))
        if WORKFLOW_STATE in session.state:
            before = storage.latest = _decode(session.state[WORKFLOW_STATE])
            arguments["checkpoint_id"] = before.checkpoint_id
            _begin_anew(before, self._agent.workflow.start_executor_id, messages)
            if (requests := before.pending_request_info_events) and self.responses is None:
                request_id, event = next(iter(requests.items()))  # the workflow asks the others again
                messages = [Message("tool", [_parse_response(request_id, event, messages[-1].text)])]
            elif self.responses is not None:
                self.requests = requests
                if not self.responses:  # nobody has answered: the questions stay
                    return
                messages = [Message("tool", self.responses)]
        async with self._agent.run(messages, stream=True, session=session, **arguments) as updates:
            async for update in updates:
                yield _storable(update)
        if storage.latest is None or storage.latest.messages:
            raise InvalidAnswerError(
                f"the state of the workflow of agent {self._agent.name!r} could not be saved when it had ended: "
                "the framework's warning in the log says which executor failed in on_checkpoint_save"
            )
        session.state[WORKFLOW_STATE] = _encode(storage.latest)
        self.requests = storage.latest.pending_request_info_events


def _adapt_orchestration(executor: Any) -> None:
    """Have an executor that ends its workflow judge what is said in its run; one of Magentic takes the last message."""
    if (has_ended := getattr(executor, "_termination_condition", None)) is not None:

        def has_ended_now(conversation: list[Message]) -> Any:
            keys = {_EARLIER, _HISTORY}
            return has_ended([message for message in conversation if not keys & message.additional_properties.keys()])

        executor._termination_condition = has_ended_now  # noqa: SLF001
    if hasattr(executor, "_magentic_context"):
        begin = executor._handle_messages  # noqa: SLF001

        def begin_with_last(messages: list[Message], context: Any) -> Awaitable[None]:
            return begin(messages[-1:], context)

        executor._handle_messages = begin_with_last  # noqa: SLF001


def _mark_earlier(messages: Iterable[Message]) -> None:
    for message in messages:
        message.additional_properties[_EARLIER] = True


def _begin_anew(checkpoint: WorkflowCheckpoint, start_id: str, messages: Sequence[Message]) -> None:
    """Have a workflow that has ended begin with a message; does nothing to one that waits for an answer.

    Args:
        checkpoint: of the workflow; changed in place.
        start_id: the executor that gets the message.
        messages: that begin the run.
    """
    if checkpoint.pending_request_info_events:
        return
    states = cast("dict[str, dict[str, Any]]", checkpoint.state.get("_executor_state", {}))
    for executor_id, state in states.items():
        if "sub_workflow_checkpoint" in state:
            _begin_anew(state["sub_workflow_checkpoint"], "", ())
        elif "round_index" in state:  # of a group chat, or of Magentic
            last_messages: list[Message] = state["conversation"][-2:-1]  # the chat ended before the others had it
            for member_id, member in states.items():
                if "agent_session" in member:
                    member["cache"] += [message for message in last_messages if message.author_name != member_id]
            _mark_earlier(state["conversation"])
            state |= {"round_index": 0, "terminated": False, "progress_ledger": None}
        elif "_autonomous_mode_turns" in state:  # of a hand-off
            _mark_earlier(state["full_conversation"])
            if executor_id != start_id:  # the first agent passes on only the very first message
                state["cache"] += messages


class _Latest:
    """A framework checkpoint storage that keeps only the latest; `HostedWorkflow` stores it with the turn."""

    def __init__(self) -> None:
        self.latest: WorkflowCheckpoint | None = None

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        self.latest = checkpoint
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        if self.latest is None or self.latest.checkpoint_id != checkpoint_id:
            raise WorkflowCheckpointException(f"there is no checkpoint {checkpoint_id}")
        return self.latest


def _encoding() -> Any:
    """Return the framework's module for writing checkpoints, which has no public name."""
    return import_module("agent_framework._workflows._checkpoint_encoding")


def _encode(checkpoint: WorkflowCheckpoint) -> str:
    """Encode a checkpoint as text, because the framework would turn parts of JSON into its own objects."""
    fields = {**checkpoint.to_dict(), "iteration_count": 0, "previous_checkpoint_id": None}
    try:
        text = json.dumps(_encoding().encode_checkpoint_value(fields))
        _decode(text)
    except Exception as error:  # whatever the app's own types raise when encoded
        raise InvalidAnswerError(
            f"the workflow's state cannot be stored with the session: {error}. Executors choose their state in "
            "on_checkpoint_save, and register_checkpoint_type makes types of the app known to the framework"
        ) from error
    return text


def _decode(text: str) -> WorkflowCheckpoint:
    fields = _encoding().decode_checkpoint_value(json.loads(text), allowed_types=_TYPES)
    return WorkflowCheckpoint.from_dict(fields)


def _parse_response(request_id: str, event: WorkflowEvent[Any], text: str) -> Content:
    """Read a message as the answer to a question."""
    value: Any = text
    with suppress(ValueError, RecursionError):
        value = text if accepts_text(event) else json.loads(text)
    if is_approval(event):
        value = cast("dict[str, Any]", value).get("approved") if isinstance(value, dict) else None
    return build_response(request_id, event, value)


def is_approval(event: WorkflowEvent[Any]) -> bool:
    """Return whether a workflow asks whether a tool may run."""
    request: Any = event.data
    return isinstance(request, Content) and request.type == "function_approval_request"


def accepts_text(event: WorkflowEvent[Any]) -> bool:
    """Return whether any text answers a question."""
    response_type: Any = event.response_type
    return response_type in {str, object, Any, Message, list[Message]}


def build_response(request_id: str, event: WorkflowEvent[Any], value: Any) -> Content:
    """Make the response to a request of a workflow.

    Args:
        request_id: of the request.
        event: the request.
        value: the answer as JSON; whether it was approved, for a request for approval.

    Raises:
        RequestError: the workflow needs another type.
    """
    request: Any = event.data
    if not is_approval(event):
        result = Content.from_function_result(request_id)
        result.result = _convert_answer(event, value)  # whatever its type; the framework would write it as text
        return result
    if not isinstance(value, bool):
        call: Any = request.function_call
        raise RequestError(
            f"the workflow waits for the approval of a call of {getattr(call, 'name', None)!r}: "
            'send {"approved": true} or {"approved": false}'
        )
    return request.to_function_approval_response(value)


def _convert_answer(event: WorkflowEvent[Any], value: Any) -> Any:
    """Convert an answer to the type that the workflow asked for."""
    response_type: Any = event.response_type
    if response_type in {object, Any}:
        return value
    if accepts_text(event):
        if not isinstance(value, str):
            raise RequestError("the workflow waits for the answer to a question, as a text")
        message = Message("user", [value])
        return value if response_type is str else message if response_type is Message else [message]
    try:
        return TypeAdapter(response_type).validate_json(json.dumps(value))
    except Exception as error:  # also for the app's own types
        raise RequestError(
            f"the workflow waits for the answer to a question, as {getattr(response_type, '__name__', response_type)}: "
            f"send it as JSON ({error})"
        ) from error


def _storable(update: AgentResponseUpdate) -> AgentResponseUpdate:
    """Encode a workflow's question, which the framework gives as objects, as JSON."""
    for content in update.contents:
        arguments: Any = content.arguments if content.type == "function_call" else None
        if not isinstance(arguments, dict) or "request_event" not in arguments:
            continue
        event = cast("dict[str, Any]", arguments["request_event"])
        content.arguments = json.dumps(
            {"request_id": arguments["request_id"], "question": format_question(event.get("data"))}
        )
        update.raw_representation = None
    return update


def format_question(question: Any) -> Any:
    """Return a workflow's question as JSON, for display."""
    if (response := getattr(question, "agent_response", None)) is not None:
        return str(response.text)
    if callable(getattr(question, "to_dict", None)):
        question = question.to_dict()
    try:
        return plain_json(question, path="question")
    except CorruptStateError:
        return TypeAdapter(Any).dump_python(question, mode="json", fallback=str)


def decode_question(data: Any, type_key: str) -> Any:
    """Return a workflow's question, encoded as in a checkpoint, as JSON for display.

    Args:
        data: encoded.
        type_key: the question's type, as ``module:name``.
    """
    try:
        return format_question(_encoding().decode_checkpoint_value(data, allowed_types=frozenset({type_key})))
    except WorkflowCheckpointException:  # has types that the framework has not been told of
        return None


def response_schema(response_type: Any) -> Mapping[str, Any] | None:
    """Return the JSON schema of a type; None where there is none."""
    if response_type in {None, object, Any}:
        return None
    try:
        return TypeAdapter(response_type).json_schema()
    except Exception:  # noqa: BLE001 - also for the app's own types
        return None
