"""Orchestrators cached between episodes: the only module that depends on the SDK's internals.

Theory of operation. On every call, the SDK's ``handle`` builds a context from the whole history, starts the user's
generator and feeds it every event: an orchestration of n steps processes n² events. But its executor is a loop over
``process_event`` whose state is in itself, the context and the generator. So the first call runs as in ``handle``,
executor and context are cached, and the next call feeds the same loop only new events. Two differences from a replay
are corrected here:

- An answer lists all actions since the generation began. The context's list is cleared after each answer, so the next
  one lists only new actions (``isPartial``). A listed action can change in one way only: its timer is cancelled; the
  answer has the numbers of these timers (``cancelledTimers``).
- In a replay, tasks answered in earlier episodes count as played. Tasks answered since the last call are marked so
  before the next.

Orchestrators that could see a difference are replayed on every step. A driver, such as the SDK's for openai-agents,
runs the user's function from its beginning on each replay: so only an undecorated generator function is cached. And
code that reads ``is_replaying`` or the history could keep an outdated value: the context of a cached generator
records such reads. In all cases the engine replays once more before it commits an end.

``is_supported`` checks the installed SDK: a small orchestrator must give the same answers both ways. If it does not,
or a name used here is missing, nothing is cached and every episode is a replay. The SDK is not patched for code
outside this file.
"""

import contextvars
import importlib
import inspect
import itertools
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from functools import partial
from types import CodeType, GeneratorType, SimpleNamespace
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
_KEEP = "\x01keep "
_RESUME = "\x01resume "
_TELLTALES = ("is_replaying", "histories")
"""Attributes whose values differ between a replay and the first run."""


def is_own_generator(function: object) -> bool:
    """Return whether an orchestrator is a plain generator function that cannot tell a replay from its code."""
    code = getattr(function, "__code__", None)
    is_plain = inspect.isgeneratorfunction(function) and not hasattr(function, "__wrapped__")
    return is_plain and isinstance(code, CodeType) and not _reads_telltale(code)


def _reads_telltale(code: CodeType) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return any(name in code.co_names for name in _TELLTALES) or any(_reads_telltale(part) for part in inner)


def _watch(context_class: Any, on_read: Callable[[], None]) -> Any:
    """Make a context class that calls ``on_read`` when the orchestrator reads an attribute that differs in a replay."""

    def make(name: str) -> property:
        def read(context: Any) -> Any:
            on_read()
            return getattr(context_class, name).fget(context)

        return property(read)

    return type(context_class.__name__, (context_class,), {name: make(name) for name in _TELLTALES})


class CachedOrchestrator:
    """One generation of an orchestrator, suspended at its last ``yield``."""

    def __init__(self, handle: Any, context_json: str) -> None:
        models = "azure.durable_functions.models"
        self._event: Any = importlib.import_module(f"{models}.history.HistoryEvent").HistoryEvent
        executors: Any = importlib.import_module(f"{models}.TaskOrchestrationExecutor")
        contexts: Any = importlib.import_module(f"{models}.DurableOrchestrationContext")
        tasks: Any = importlib.import_module(f"{models}.Task")
        self._task = tasks.TaskBase
        self._timer = tasks.TimerTask
        self._function: Any = handle.orchestrator_function
        self._variables = contextvars.copy_context()
        self._played_tasks: list[Any] = []
        self._executor: Any = executors.TaskOrchestrationExecutor()
        self._set_value: Any = self._executor.set_task_value
        self._executor.set_task_value = self._record_and_set_value
        self._has_read_telltale = False
        self._context: Any = _watch(contexts.DurableOrchestrationContext, self._record_telltale_read).from_json(
            context_json
        )
        self._has_read_telltale = False  # the SDK itself may have, just now
        self._context._input_expected_type = getattr(handle, "_df_input_type", None)  # noqa: SLF001 - see above

    @property
    def is_waiting(self) -> bool:
        """Return whether the generator can be resumed with the same result as a replay."""
        generator = getattr(self._executor, "generator", None)
        is_own = isinstance(generator, GeneratorType) and generator.gi_code is self._function.__code__
        return is_own and not self._has_read_telltale and not self._executor.has_execution_completed

    def start(self) -> str:
        """Run the whole history; returns the answer of ``handle``."""
        execute = partial(self._executor.execute, self._context, self._context._histories, self._function)  # noqa: SLF001 - see above
        state: str = self._variables.run(execute)
        self._clear_actions()
        return state

    def resume(self, events_json: str) -> str:
        """Feed new events; returns an answer that lists new actions."""
        for played_task in self._played_tasks:
            for task in _with_parents(played_task):
                task.set_is_played(True)
        self._played_tasks.clear()
        events = [self._event(**body) for body in json.loads(events_json)]
        self._context._histories.extend(events)  # noqa: SLF001 - see above
        try:
            state: str = self._variables.run(self._process, events)
        except Exception as error:
            if OUT_OF_PROC_LABEL not in str(error):
                raise
            raise Exception(mark_partial(str(error), self._clear_actions())) from error  # noqa: TRY002 - as the SDK raises
        return mark_partial(state, self._clear_actions())

    def _process(self, events: list[Any]) -> str:
        for event in events:
            self._executor.process_event(event)
            if self._executor.has_execution_completed:
                break
        return self._executor.get_orchestrator_state_str()

    def _record_telltale_read(self) -> None:
        self._has_read_telltale = True

    def _record_and_set_value(self, event: Any, is_success: bool, id_key: str) -> None:
        open_task: Any = self._context.open_tasks.get(getattr(event, id_key))
        waiting_tasks: Any = cast("list[Any]", open_task if isinstance(open_task, list) else [open_task])
        task: Any = waiting_tasks[-1] if waiting_tasks else None
        if isinstance(task, self._task):
            self._played_tasks += _with_parents(task)
        self._set_value(event, is_success, id_key)

    def _clear_actions(self) -> list[int]:
        """Clear the reported actions; returns the timers cancelled since the last call."""
        self._context._action_payload_v2.clear()  # noqa: SLF001 - see above
        tasks: dict[Any, Any] = self._context.open_tasks
        cancelled_timers = [key for key, task in tasks.items() if isinstance(task, self._timer) and task.is_cancelled]
        for key in cancelled_timers:
            del tasks[key]
        return cancelled_timers


def _with_parents(task: Any) -> Iterator[Any]:
    while task is not None:
        yield task
        task = task.parent


class OrchestratorCache:
    """Cached orchestrators of an app, at most ``capacity``; the least recently used is evicted first.

    Owned by the host's loop; threads that run functions only look up tokens.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._idle: OrderedDict[str, CachedOrchestrator] = OrderedDict()
        self._busy: dict[str, CachedOrchestrator | None] = {}
        self._tokens = itertools.count()

    def wrap(self, handle: Callable[[Any], str]) -> Callable[[Any], str]:
        """Wrap an orchestrator's ``handle`` to accept the texts of ``open`` and ``check_out``."""
        is_cacheable = is_own_generator(cast("Any", handle).orchestrator_function)

        def handle_or_resume(context: Any) -> str:
            body: Any = context.body
            if not isinstance(body, str) or not body.startswith("\x01"):
                return handle(context)
            head, _, text = body.partition("\n")
            if head.startswith(_RESUME):
                busy_orchestrator = self._busy[head.removeprefix(_RESUME)]
                assert busy_orchestrator is not None, head
                return busy_orchestrator.resume(text)
            if not is_cacheable:
                return handle(SimpleNamespace(body=text))
            orchestrator = CachedOrchestrator(handle, text)
            state = orchestrator.start()
            token = head.removeprefix(_KEEP)
            if token in self._busy:  # not given up meanwhile
                self._busy[token] = orchestrator
            return state

        return handle_or_resume

    def open(self, context_json: str) -> tuple[str, str]:
        """Return a token for a new orchestrator, and the text that creates it."""
        token = str(next(self._tokens))
        self._busy[token] = None
        return token, f"{_KEEP}{token}\n{context_json}"

    def check_out(self, token: str, events_json: str) -> str | None:
        """Return the text that resumes an orchestrator; None when it was evicted."""
        orchestrator = self._idle.pop(token, None)
        if orchestrator is None:
            return None
        self._busy[token] = orchestrator
        return f"{_RESUME}{token}\n{events_json}"

    def put_back(self, token: str, *, keep: bool) -> bool:
        """End a call begun by ``open`` or ``check_out``; returns whether the orchestrator stays cached."""
        orchestrator = self._busy.pop(token, None)
        is_cached = orchestrator is not None and keep and orchestrator.is_waiting
        if orchestrator is not None and is_cached:
            self._idle[token] = orchestrator
            if len(self._idle) > self._capacity:
                self._idle.popitem(last=False)
        return is_cached

    def release(self, token: str) -> None:
        """Drop an orchestrator."""
        self._idle.pop(token, None)


def is_supported() -> bool:
    """Check the installed SDK: a small orchestrator must answer the same when resumed as when replayed."""
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
    orchestrator_cached: CachedOrchestrator | None = None
    all_actions: list[Any] = []
    texts: list[str] = []
    for number, events in enumerate(episodes):
        fresh = [encode_event(event, 1.0 + number) for event in events]
        texts += fresh
        context = encode_orchestration(
            texts, instance_id="sample", parent_id=None, input_json=None, is_replaying=number > 0
        )
        full = decode_orchestrator_answer(handle(SimpleNamespace(body=context)))
        if orchestrator_cached is None:
            orchestrator_cached = CachedOrchestrator(handle, context)
            part = decode_orchestrator_answer(orchestrator_cached.start())
        else:
            part = decode_orchestrator_answer(orchestrator_cached.resume(encode_events(fresh)))
        all_actions += part.actions
        same = (full.is_done, full.output_json, full.custom_status_json) == (
            part.is_done,
            part.output_json,
            part.custom_status_json,
        )
        assert same, (full, part)
        assert [type(action) for action in full.actions] == [type(action) for action in all_actions], (
            full,
            all_actions,
        )
        assert part.cancelled_timers == ((2,) if number == 2 else ()), part  # noqa: PLR2004 - the third episode
    assert orchestrator_cached is not None
    assert not orchestrator_cached.is_waiting, "it has returned"


def _sample(context: Any) -> Generator[Any, Any, list[Any]]:
    yield context.task_all([context.call_activity("a", 1), context.call_activity("b", 2)])
    timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=9))
    event = context.wait_for_external_event("Go")
    winner: Any = yield context.task_any([event, timer])
    timer.cancel()
    context.set_custom_status({"won": winner is event})
    value: Any = yield context.call_activity("c", event.result)
    return [value, str(context.current_utc_datetime), str(context.new_guid())]
