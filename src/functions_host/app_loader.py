"""Load an app's ``function_app.py`` and index its functions with Microsoft's own worker library."""

import importlib
import inspect
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from functions_host import worker_values
from functions_host.app_errors import explain_import, explain_refusal
from functions_host.errors import StartupError
from functions_host.settings import is_disabled

_DURABLE_TRIGGERS = {
    "orchestrationTrigger": "orchestration",
    "activityTrigger": "activity",
    "entityTrigger": "entityName",
}
_SERVED_TRIGGERS = {"httpTrigger", "timerTrigger", "mcpToolTrigger", *_DURABLE_TRIGGERS}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,127}", re.IGNORECASE)
_REMEMBERED_TIMES = 16_384


@dataclass(frozen=True, slots=True)
class ClientBinding:
    """A parameter that takes a durable client."""

    parameter: str
    task_hub: str | None
    connection: str | None


@dataclass(frozen=True, slots=True)
class HttpTrigger:
    """The HTTP route of a function; ``methods`` is empty when all are taken."""

    route: str
    methods: frozenset[str]
    auth_level: str


@dataclass(frozen=True, slots=True)
class AppFunction:
    """One indexed function.

    ``durable_name`` is set for orchestrators, activities and entities; ``binding`` is the trigger as declared;
    ``cannot_be_awaited`` marks orchestrators and entities written with ``async``, which the SDK does not await.
    """

    name: str
    function_id: str
    trigger: str
    parameter: str
    is_async: bool
    http: HttpTrigger | None
    durable_name: str | None
    clients: tuple[ClientBinding, ...]
    has_return: bool
    binding: Mapping[str, Any]
    retry: worker_values.RpcRetryOptions | None = None
    cannot_be_awaited: bool = False

    @property
    def is_served(self) -> bool:
        """Say whether this host runs functions of this kind."""
        return self.trigger in _SERVED_TRIGGERS


def load_app(app_dir: Path) -> tuple[AppFunction, ...]:
    """Import and index the app; its folder becomes the working directory and is put on ``sys.path``.

    Raises:
        StartupError: no app, an error while importing it, or functions that the worker refuses.
        SystemExit: raised by the app itself; its message is meant for the user.
    """
    script = os.environ.get("PYTHON_SCRIPT_FILE_NAME", "function_app.py")
    if not (app_dir / script).is_file():
        raise StartupError(f"There is no {script} in {app_dir}; start in the app's folder or pass --app DIR.")
    os.chdir(app_dir)
    sys.path.insert(0, str(app_dir))
    _import_app(app_dir, Path(script).stem)
    return describe_app(_index(app_dir, script))


def describe_app(indexed: Iterable[worker_values.RpcFunctionMetadata]) -> tuple[AppFunction, ...]:
    """Describe what the worker library indexed; functions that a setting disables are left out.

    Raises:
        StartupError: a function has a name that the Functions host does not take.
    """
    _remember_parsed_times()
    functions = tuple(_describe(metadata) for metadata in indexed)
    for function in functions:
        if not _NAME.fullmatch(function.name) or function.name.lower() == "host":
            raise StartupError(
                f"Function {function.name!r} cannot be loaded: names have up to 128 letters, digits, '-' and '_', "
                "start with a letter, and are not 'host'; change its @app.function_name."
            )
    return tuple(function for function in functions if not is_disabled(function.name))


def _import_app(app_dir: Path, module_name: str) -> None:
    try:
        importlib.import_module(module_name)
    except Exception as error:
        raise StartupError(explain_import(error, app_dir)) from error


def _remember_parsed_times() -> None:
    """Let the SDK remember the times that it has parsed.

    On every replay it parses the time of every event again, which took a third of an episode. The
    parser stays the SDK's own; its results cannot change once made.
    """
    history_event: Any = sys.modules.get("azure.durable_functions.models.history.HistoryEvent")
    parse = getattr(history_event, "dt_parse", None)
    if parse is not None and not hasattr(parse, "cache_info"):
        history_event.dt_parse = lru_cache(_REMEMBERED_TIMES)(parse)


def _index(app_dir: Path, script: str) -> Sequence[worker_values.RpcFunctionMetadata]:
    handle_event: Any = importlib.import_module("azure_functions_runtime.handle_event")
    handle_event.protos = worker_values
    try:
        handle_event.load_binding_registry()
        found = handle_event.index_functions(str(app_dir / script), str(app_dir))
    except Exception as error:
        raise StartupError(explain_refusal(error)) from error
    return found or ()


def copy_functions(functions: Iterable[AppFunction]) -> tuple[AppFunction, ...]:
    """Register functions once more under new ids, so that what is put around the copies leaves the originals alone."""
    runtime: Any = importlib.import_module("azure_functions_runtime.handle_event")
    registry: Any = runtime._functions._functions  # noqa: SLF001 - the runtime's registry
    copies: list[AppFunction] = []
    for function in functions:
        copy = replace(function, function_id=str(uuid.uuid4()))
        registry[copy.function_id] = registry[function.function_id]
        copies.append(copy)
    return tuple(copies)


def _describe(metadata: worker_values.RpcFunctionMetadata) -> AppFunction:
    runtime: Any = importlib.import_module("azure_functions_runtime.handle_event")
    registered: Any = runtime._functions.get_function(metadata.function_id)  # noqa: SLF001 - the runtime's registry
    # The worker's id is made of the name alone; with one that is unique, several apps fit into one process.
    function_id = str(uuid.uuid4())
    runtime._functions._functions[function_id] = registered  # noqa: SLF001
    bindings: list[dict[str, Any]] = [json.loads(text) for text in metadata.raw_bindings]
    trigger = next(binding for binding in bindings if str(binding["type"]).lower().endswith("trigger"))
    kind = str(trigger["type"])
    name_key = _DURABLE_TRIGGERS.get(kind)
    http = None
    if kind == "httpTrigger":
        methods = frozenset(str(method).upper() for method in trigger.get("methods") or ())
        level = str(trigger.get("authLevel") or "FUNCTION").upper()
        http = HttpTrigger(str(trigger.get("route") or metadata.name), methods, level)
    return AppFunction(
        name=metadata.name,
        function_id=function_id,
        trigger=kind,
        parameter=str(trigger["name"]),
        is_async=bool(registered.is_async),
        http=http,
        durable_name=str(trigger.get(name_key) or metadata.name) if name_key else None,
        clients=tuple(
            ClientBinding(str(binding["name"]), binding.get("taskHub"), binding.get("connectionName"))
            for binding in bindings
            if binding["type"] == "durableClient"
        ),
        has_return=bool(registered.has_return),
        binding=trigger,
        retry=metadata.retry_options,
        cannot_be_awaited=_is_async(_find_durable_code(registered.func)),
    )


def _find_durable_code(handle: Any) -> object:
    return getattr(handle, "orchestrator_function", None) or getattr(handle, "entity_function", None)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
