"""Orchestrators that stay in memory between episodes: the one place that knows the SDK's insides.

Theory of operation. The SDK's ``handle`` builds a context from the whole history, starts the user's
generator and feeds it every event, on every call: an orchestration of n steps costs n² of them. Its
executor is a loop over ``process_event``, though, and keeps all that it knows in itself, in the context
and in the generator. So a first call is made as ``handle`` makes it, executor and context are kept, and
the next call feeds the same loop with the new events only. Two things differ from a replay, and both are
set right here:

- An answer lists all actions since the generation began. After each answer the context's list is emptied,
  so that the next one lists what is new (``isPartial``); the only thing that can still happen to a listed
  action is that its timer is cancelled, and those timers are named by their numbers (``cancelledTimers``).
- In a replay, tasks that were answered in earlier episodes count as played. The tasks that were answered
  since the last call are marked so before the next.

``is_supported`` tries this with the SDK at hand: a small orchestrator has to give the same answers both
ways. If it does not, or any name used here is gone, nothing is kept and every episode is a replay.
Nothing of the SDK is replaced or patched for code outside this file.
"""

import contextvars
import importlib
import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from functools import partial
from types import GeneratorType, SimpleNamespace
from typing import Any, cast

from functions_host.engine.events import ActivityCompleted, EpisodeStarted, Event, EventRaised, ExecutionStarted
from functions_host.engine.sdk_wire import (
    OUT_OF_PROC_LABEL,
    decode_orchestrator_answer,
    encode_event,
    encode_events,
    encode_orchestration,
    mark_partial,
)

_logger = logging.getLogger(__name__)
_CAPACITY = 500
_KEEP, _RESUME = "\x01keep ", "\x01resume "


class Resident:
    """One generation of an orchestrator, waiting at its last ``yield``."""

    def __init__(self, handle: Any, context_json: str) -> None:
        models = "azure.durable_functions.models"
        self._event: Any = importlib.import_module(f"{models}.history.HistoryEvent").HistoryEvent
        executors: Any = importlib.import_module(f"{models}.TaskOrchestrationExecutor")
        contexts: Any = importlib.import_module(f"{models}.DurableOrchestrationContext")
        tasks: Any = importlib.import_module(f"{models}.Task")
        self._task, self._timer = tasks.TaskBase, tasks.TimerTask
        self._function: Any = handle.orchestrator_function
        self._variables = contextvars.copy_context()
        self._answered: list[Any] = []
        self._executor: Any = executors.TaskOrchestrationExecutor()
        self._set_value: Any = self._executor.set_task_value
        self._executor.set_task_value = self._note_answer
        self._context: Any = contexts.DurableOrchestrationContext.from_json(context_json)
        self._context._input_expected_type = getattr(handle, "_df_input_type", None)  # noqa: SLF001 - see above

    @property
    def is_waiting(self) -> bool:
        """Say whether there is a generator that can be resumed."""
        is_generator = isinstance(getattr(self._executor, "generator", None), GeneratorType)
        return is_generator and not self._executor.has_execution_completed

    def start(self) -> str:
        """Play the whole history; returns what ``handle`` would."""
        execute = partial(self._executor.execute, self._context, self._context.histories, self._function)
        state: str = self._variables.run(execute)
        self._settle()
        return state

    def resume(self, events_json: str) -> str:
        """Feed the events that are new; returns an answer that lists what is new."""
        for answered in self._answered:
            for task in _with_parents(answered):
                task.set_is_played(True)
        self._answered.clear()
        events = [self._event(**body) for body in json.loads(events_json)]
        self._context.histories.extend(events)
        try:
            state: str = self._variables.run(self._process, events)
        except Exception as error:
            if OUT_OF_PROC_LABEL not in str(error):
                raise
            raise Exception(mark_partial(str(error), self._settle())) from error  # noqa: TRY002 - as the SDK raises
        return mark_partial(state, self._settle())

    def _process(self, events: list[Any]) -> str:
        for event in events:
            self._executor.process_event(event)
            if self._executor.has_execution_completed:
                break
        return self._executor.get_orchestrator_state_str()

    def _note_answer(self, event: Any, is_success: bool, id_key: str) -> None:
        found: Any = self._context.open_tasks.get(getattr(event, id_key))
        waits: Any = cast("list[Any]", found if isinstance(found, list) else [found])
        task: Any = waits[-1] if waits else None
        if isinstance(task, self._task):
            self._answered += _with_parents(task)
        self._set_value(event, is_success, id_key)

    def _settle(self) -> list[int]:
        """Forget what has been told; returns the timers cancelled since the last call."""
        self._context._action_payload_v2.clear()  # noqa: SLF001 - see above
        tasks: dict[Any, Any] = self._context.open_tasks
        cancelled = [key for key, task in tasks.items() if isinstance(task, self._timer) and task.is_cancelled]
        for key in cancelled:
            del tasks[key]
        return cancelled


def _with_parents(task: Any) -> Iterator[Any]:
    while task is not None:
        yield task
        task = task.parent


class Residents:
    """The generators of an app that are kept, at most ``capacity``: the longest unused goes first.

    Owned by the host's loop; the threads that run functions only look a place up by its token.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._idle: OrderedDict[str, Resident] = OrderedDict()
        self._busy: dict[str, Resident | None] = {}
        self._tokens = itertools.count()

    def wrap(self, handle: Callable[[Any], str]) -> Callable[[Any], str]:
        """Make an orchestrator's ``handle`` understand texts of ``open`` and ``take``."""

        def handle_or_resume(context: Any) -> str:
            body: Any = context.body
            if not isinstance(body, str) or not body.startswith("\x01"):
                return handle(context)
            head, _, text = body.partition("\n")
            if head.startswith(_RESUME):
                found = self._busy[head.removeprefix(_RESUME)]
                assert found is not None, head
                return found.resume(text)
            resident = Resident(handle, text)
            state = resident.start()
            token = head.removeprefix(_KEEP)
            if token in self._busy:  # not given up meanwhile
                self._busy[token] = resident
            return state

        return handle_or_resume

    def open(self, context_json: str) -> tuple[str, str]:
        """Get a token for a generator to come, and the text that makes it."""
        token = str(next(self._tokens))
        self._busy[token] = None
        return token, f"{_KEEP}{token}\n{context_json}"

    def take(self, token: str, events_json: str) -> str | None:
        """Get the text that resumes a generator; None when it is gone."""
        resident = self._idle.pop(token, None)
        if resident is None:
            return None
        self._busy[token] = resident
        return f"{_RESUME}{token}\n{events_json}"

    def put_back(self, token: str, *, keep: bool) -> None:
        """End a call that ``open`` or ``take`` began; the generator is kept if it still waits."""
        resident = self._busy.pop(token, None)
        if resident is not None and keep and resident.is_waiting:
            self._idle[token] = resident
            if len(self._idle) > self._capacity:
                self._idle.popitem(last=False)

    def release(self, token: str) -> None:
        """Forget a generator."""
        self._idle.pop(token, None)


def is_supported() -> bool:
    """Try it with the SDK at hand: a small orchestrator has to answer the same when resumed as when replayed."""
    try:
        _compare_both_ways()
    except Exception as error:  # noqa: BLE001 - whatever it is, replaying is always right
        _logger.warning("Orchestrators are replayed on every step: this SDK cannot resume them (%r).", error)
        return False
    return True


def _compare_both_ways() -> None:
    orchestrator: Any = importlib.import_module("azure.durable_functions.orchestrator")
    handle: Any = orchestrator.Orchestrator.create(_sample)
    episodes: list[list[Event]] = [
        [EpisodeStarted(), ExecutionStarted("sample", "1", "sample", "")],
        [EpisodeStarted(), ActivityCompleted(0, "1"), ActivityCompleted(1, "2")],
        [EpisodeStarted(), EventRaised("Go", '"x"')],
        [EpisodeStarted(), ActivityCompleted(3, "7")],
    ]
    resident: Resident | None = None
    listed: list[Any] = []
    texts: list[str] = []
    for number, events in enumerate(episodes):
        fresh = [encode_event(event, 1.0 + number) for event in events]
        texts += fresh
        context = encode_orchestration(
            texts, instance_id="sample", parent_id=None, input_json=None, is_replaying=number > 0
        )
        full = decode_orchestrator_answer(handle(SimpleNamespace(body=context)))
        if resident is None:
            resident = Resident(handle, context)
            part = decode_orchestrator_answer(resident.start())
        else:
            part = decode_orchestrator_answer(resident.resume(encode_events(fresh)))
        listed += part.actions
        same = (full.is_done, full.output_json, full.custom_status_json) == (
            part.is_done,
            part.output_json,
            part.custom_status_json,
        )
        assert same, (full, part)
        assert [type(action) for action in full.actions] == [type(action) for action in listed], (full, listed)
        assert part.cancelled_timers == ((2,) if number == 2 else ()), part  # noqa: PLR2004 - the third episode
    assert resident is not None
    assert not resident.is_waiting, "it has returned"


def _sample(context: Any) -> Generator[Any, Any, list[Any]]:
    yield context.task_all([context.call_activity("a", 1), context.call_activity("b", 2)])
    timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=9))
    event = context.wait_for_external_event("Go")
    winner: Any = yield context.task_any([event, timer])
    timer.cancel()
    context.set_custom_status({"won": winner is event})
    value: Any = yield context.call_activity("c", event.result)
    return [value, str(context.current_utc_datetime), str(context.new_guid())]
