"""Load an app's ``function_app.py`` and index its functions with Microsoft's own worker library."""

import importlib
import inspect
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import cache, partial, update_wrapper
from pathlib import Path
from typing import Any

from functions_host.app import worker_messages
from functions_host.app.bindings import read_bindings
from functions_host.app.function import DURABLE_TRIGGERS, AppFunction, ClientBinding, HttpTrigger
from functions_host.app.load_errors import explain_import, explain_refusal, trace_of_app
from functions_host.errors import StartupError
from functions_host.settings import is_disabled

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,127}", re.IGNORECASE)
_SOME_TIME = "2026-01-01T00:00:00Z"
_OWN_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")


def load_app(app_dir: Path) -> tuple[AppFunction, ...]:
    """Import and index the app; makes its folder the working directory and adds it to ``sys.path``.

    Raises:
        StartupError: there is no app, its import fails, or the worker refuses a function.
        SystemExit: raised by the app, with a message for the user.
    """
    script = os.environ.get("PYTHON_SCRIPT_FILE_NAME", "function_app.py")
    if not (app_dir / script).is_file():
        raise StartupError(f"There is no {script} in {app_dir}; start in the app's folder or pass --app DIR.")
    os.chdir(app_dir)
    sys.path.insert(0, str(app_dir))
    _import_app(app_dir, Path(script).stem)
    return describe_app(_index(app_dir, script))


def describe_app(functions_metadata: Iterable[worker_messages.RpcFunctionMetadata]) -> tuple[AppFunction, ...]:
    """Describe the indexed functions, without those that a setting disables.

    Raises:
        StartupError: the Functions host does not accept a function's name.
    """
    _shorten_replays()
    functions = tuple(_describe(metadata) for metadata in functions_metadata)
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
        raise StartupError(explain_import(error, app_dir), trace_of_app(error, app_dir)) from error


def _shorten_replays() -> None:
    """Have the SDK do for every replay only what it needs to; the results are the same.

    Every replay parses the time of every event, with a parser that takes any form of a date and 50 microseconds: the
    host's own times are read without it. And it makes the class of a table of its executor, in 200 microseconds.
    """
    for name, attribute, shorten in (
        ("history.HistoryEvent", "dt_parse", _parse_own_times_directly),
        ("DurableOrchestrationStatus", "dt_parse", _parse_own_times_directly),
        ("TaskOrchestrationExecutor", "namedtuple", cache),
    ):
        module: Any = sys.modules.get(f"azure.durable_functions.models.{name}")
        function = getattr(module, attribute, None)
        if function is not None and not isinstance(function, partial):
            setattr(module, attribute, update_wrapper(partial(shorten(function)), function))


def _parse_own_times_directly(parse: Callable[[str], datetime]) -> Callable[[str], datetime]:
    return partial(_parse_time, parse, parse(_SOME_TIME).tzinfo)


def _parse_time(parse: Callable[[str], datetime], utc: tzinfo | None, text: str) -> datetime:
    if _OWN_TIME.fullmatch(text):
        with suppress(ValueError):
            return datetime.fromisoformat(text[:-1]).replace(tzinfo=utc)
    return parse(text)


def _index(app_dir: Path, script: str) -> Sequence[worker_messages.RpcFunctionMetadata]:
    handle_event: Any = importlib.import_module("azure_functions_runtime.handle_event")
    handle_event.protos = worker_messages
    try:
        handle_event.load_binding_registry()
        found = handle_event.index_functions(str(app_dir / script), str(app_dir))
    except Exception as error:
        raise StartupError(explain_refusal(error)) from error
    return found or ()


def _describe(metadata: worker_messages.RpcFunctionMetadata) -> AppFunction:
    runtime: Any = importlib.import_module("azure_functions_runtime.handle_event")
    runtime_function: Any = runtime._functions.get_function(metadata.function_id)  # noqa: SLF001 - the runtime's registry
    # The worker's id is made of the name alone; with one that is unique, several apps fit into one process.
    function_id = str(uuid.uuid4())
    runtime._functions._functions[function_id] = runtime_function  # noqa: SLF001
    bindings: list[dict[str, Any]] = [json.loads(text) for text in metadata.raw_bindings]
    trigger = next(binding for binding in bindings if str(binding["type"]).lower().endswith("trigger"))
    kind = str(trigger["type"])
    name_key = DURABLE_TRIGGERS.get(kind)
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
        is_async=bool(runtime_function.is_async),
        http=http,
        durable_name=str(trigger.get(name_key) or metadata.name) if name_key else None,
        clients=tuple(
            ClientBinding(str(binding["name"]), binding.get("taskHub"), binding.get("connectionName"))
            for binding in bindings
            if binding["type"] == "durableClient"
        ),
        has_return=bool(runtime_function.has_return),
        binding=trigger,
        retry=metadata.retry_options,
        cannot_be_awaited=_is_async(_find_durable_code(runtime_function.func)),
        bindings=read_bindings(bindings, trigger),
    )


def _find_durable_code(handle: Any) -> object:
    return getattr(handle, "orchestrator_function", None) or getattr(handle, "entity_function", None)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
