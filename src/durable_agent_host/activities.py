"""Run an agent as an activity of your own orchestration: journaled and folded as in a turn, without a session.

An activity may run more than once: when the process dies, the platform runs it in another. The call's id lets such a
run resume instead of starting over: `agent_call` draws it in the orchestrator, where it is the same at every replay,
and the turn log keeps the run's journal under it.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NotRequired, Protocol, TypedDict, cast

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.agent_runner import AgentRunner, RunLimits
from durable_agent_host.agent.outcome_builder import rebuild_error, utc_now
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.workflow_agents import AgentSource, build_agent, factory_of
from durable_agent_host.app_functions import call_app_function
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.errors import RegistrationError, RequestError
from durable_agent_host.features.registry import activity_features
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.settings import Settings
from durable_agent_host.store_factory import stores_of
from durable_agent_host.telemetry.telemetry_observers import report_end, turn_observers
from durable_agent_host.turn.plan import PlanTimes
from durable_agent_host.turn.turn_report import report_without_orchestration
from durable_agent_host.turn.turn_requests import request_of_call
from durable_agent_host.turn_log.protocol import TurnLog

LEASE_SECONDS: Final = 30.0
"""How long a waiting turn and a delivery trust that what they wait for is alive, before they check."""
_CALL_FIELDS: Final = frozenset({"call_id", "input", "session", "answers"})


class AgentCallWire(TypedDict):
    """The input of an agent's activity, as `agent_call` makes it.

    Attributes:
        call_id: identifies the call; the same each time the call runs.
        input: the app's own value, passed to the decorated function.
        session: the conversation so far, as returned by an earlier call.
        replies: people's decisions on the calls that an earlier run returned as ``pending``, by call id: ``approved``,
            ``reason``, ``arguments``.
    """

    call_id: str
    input: NotRequired[Any]
    session: NotRequired[Mapping[str, Any]]
    replies: NotRequired[Mapping[str, Mapping[str, Any]]]


MessageOfCall = str | list[dict[str, Any]]
"""What the decorated function returns: a text, or parts."""


class AgentAnswerWire(TypedDict):
    """The result of an agent's activity.

    Attributes:
        status: ``completed``, or ``suspended`` while tool calls wait for a person.
        text: the answer's text; empty while suspended.
        session: the conversation including this call, for the next call and for `decode_session`; unchanged while the
            call is suspended.
        usage: token counts by the framework's names, or None.
        pending: the tool calls that wait: ``call_id``, ``name``, ``arguments``, ``reason``.
    """

    status: str
    text: str
    session: Mapping[str, Any]
    usage: Mapping[str, Any] | None
    pending: list[Mapping[str, Any]]


class _Context(Protocol):
    def new_uuid(self) -> Any:
        """Draw an id that is the same at every replay."""
        ...


def agent_call(context: _Context, value: Any = None, *, session: Mapping[str, Any] | None = None) -> AgentCallWire:
    """Build the input of an activity decorated with `agent_activity`.

    Guarantee: replay-safe; call it once for each call of the activity.

    Args:
        context: the orchestration's.
        value: JSON; passed to the decorated function.
        session: from an earlier call's result, to continue its conversation. It becomes part of the orchestration's
            history, so long conversations belong in a session of `DurableAgentApp`.

    Returns:
        The activity's input. To answer calls that wait for a person, call the activity again with the same input and
        ``answers`` added.
    """
    call: AgentCallWire = {"call_id": str(context.new_uuid()), "input": value}
    return call if session is None else {**call, "session": session}


def agent_activity(
    agent: AgentSource, *, settings: Settings | None = None
) -> Callable[[Callable[[Any], MessageOfCall]], Callable[..., Any]]:
    """Run an agent in an activity: the decorated function turns the activity's input into the user's message.

    The message is a text, or a list of parts as ``run`` takes them over HTTP.

    Guarantee: idempotent by the call's id: when the activity runs again, finished model and tool calls are not made
    again, and an ended call returns the same answer.

    Args:
        agent: of the framework, with a name; or a function that builds it.
        settings: where the journal is kept, time limits, model retries; by default read from the environment.

    Returns:
        A decorator. Put the SDK's ``activity_trigger`` above it.

    Raises:
        RegistrationError: the agent has no name.
        SettingError: a setting is invalid.
    """
    runner = _make_runner(agent, settings or Settings.from_environment())

    def decorate(make_message: Callable[[Any], MessageOfCall]) -> Callable[..., Any]:
        @functools.wraps(make_message)
        async def run_agent(*arguments: Any, **keyword_arguments: Any) -> AgentAnswerWire:
            (wire,) = *arguments, *keyword_arguments.values()
            call = _read_call(wire, make_message.__name__)
            message = await call_app_function("activity", make_message, call.get("input"))
            request = request_of_call(runner.name, call["call_id"], message, created_at=utc_now())
            session = decode_session(call.get("session"))
            running = runner.run(session, request, call.get("answers"))
            outcome = await asyncio.wrap_future(submit(running))
            if (report := report_without_orchestration(request, outcome)) is not None:
                runner.notify_end(report)
            return _answer(session, outcome)

        # The worker binds by parameter name, and reads annotations as those of the binding.
        (parameter,) = inspect.signature(make_message).parameters.values()
        run_agent.__signature__ = inspect.Signature([parameter.replace(annotation=inspect.Parameter.empty)])  # type: ignore[attr-defined]
        run_agent.__annotations__ = {}
        del run_agent.__wrapped__  # type: ignore[attr-defined]
        return run_agent

    return decorate


def _make_runner(agent: AgentSource, settings: Settings) -> AgentRunner:
    built_agent = build_agent(agent)
    name = getattr(built_agent, "name", None)
    if not isinstance(name, str) or not name:
        raise RegistrationError("the agent has no name: give it one, which names its journal")
    return AgentRunner(
        name,
        built_agent,
        provider_for,
        features=activity_features(built_agent),
        observers=turn_observers(),
        open_log=_opener(settings),
        limits=run_limits(settings),
        notify_end=report_end,
        new_agent=factory_of(agent),
    )


def run_limits(settings: Settings) -> RunLimits:
    """Return the limits and costs of an agent's run, and its model retries, from the settings."""
    retries = RetryPolicy(
        retries=settings.model_attempts - 1,
        first_seconds=settings.model_retry_seconds,
        most_seconds=settings.model_retry_most_seconds,
    )
    return RunLimits(
        settings.turn_timeout_seconds,
        retries,
        bounds=settings,
        recorded_bytes=settings.kept_call_bytes,
        answer_seconds=min(settings.approval_timeout_seconds, settings.turn_log_retention_hours * 3600),
        deferral_seconds=settings.turn_log_retention_hours * 3600,
        max_deaths=settings.activity_attempts,
        death_seconds=settings.crash_retry_seconds,
    )


def plan_times(settings: Settings) -> PlanTimes:
    """Return the time limits of turns, from the settings."""
    return PlanTimes(
        lease_seconds=LEASE_SECONDS,
        activity_attempts=settings.activity_attempts,
    )


@functools.cache
def _opener(settings: Settings) -> Callable[[], TurnLog]:
    """Return a function that opens, on first use, the log of all activities with these settings."""
    return stores_of(settings).open_log


def _read_call(wire: Any, activity: str) -> AgentCallWire:
    hint = f"call it with context.call_activity({activity!r}, agent_call(context, value))"
    if not isinstance(wire, dict):
        raise RequestError(f"the input of the activity {activity!r} is {type(wire).__name__}, not an object: {hint}")
    call = cast("dict[str, Any]", wire)
    if not isinstance(call.get("call_id"), str) or not call["call_id"]:
        raise RequestError(f"the input of the activity {activity!r} has no 'call_id': {hint}")
    if unknown := sorted(call.keys() - _CALL_FIELDS):
        raise RequestError(f"the input of the activity {activity!r} has {', '.join(unknown)}, which it does not take")
    return cast("AgentCallWire", call)


def _answer(before: Session, outcome: TurnOutcome) -> AgentAnswerWire:
    if outcome.status not in {"completed", "suspended"}:
        raise rebuild_error(outcome.error or {"message": f"the agent's run was {outcome.status}"})
    after = before
    if outcome.status == "completed":
        after = replace(before, entries=(*before.entries, *outcome.entries), agent_session=outcome.agent_session)
    return {
        "status": outcome.status,
        "text": outcome.text,
        "session": encode_session(after),
        "usage": outcome.usage,
        "pending": list(outcome.pending),
    }
