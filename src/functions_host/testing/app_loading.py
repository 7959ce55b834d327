"""Loads apps into the process of the tests, side by side, and unloads them."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from functions_host.app import worker_messages
from functions_host.app.function import AppFunction
from functions_host.app.load_errors import explain_refusal
from functions_host.app.loader import describe_app
from functions_host.errors import StartupError
from functions_host.host_json import HostSettings, read_host_settings
from functions_host.settings import apply_local_settings


@dataclass(slots=True)
class ProcessState:
    """The process state that an app changes, saved for ``restore``."""

    folder: str = field(default_factory=os.getcwd)
    path: list[str] = field(default_factory=lambda: list(sys.path))
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def restore(self) -> None:
        """Restore the state."""
        os.chdir(self.folder)
        sys.path[:] = self.path
        os.environ.clear()
        os.environ.update(self.environment)


def load_tested_app(app: Any, settings: Mapping[str, str]) -> tuple[tuple[AppFunction, ...], HostSettings]:
    """Load an app from its folder, or from an object imported by the test.

    Args:
        app: a path, or an instance of ``FunctionApp``, ``DFApp`` or ``Blueprint``.
        settings: app settings during the test; they override ``local.settings.json``.

    Returns:
        Its functions and its ``host.json``.

    Raises:
        StartupError: as ``start`` would raise.
    """
    os.environ.update(settings)
    is_folder = isinstance(app, str | os.PathLike)
    host_settings = HostSettings()
    if is_folder:
        app_dir = Path(os.fspath(app)).resolve()
        os.environ.update({"AzureWebJobsScriptRoot": str(app_dir)})
        apply_local_settings(app_dir, os.environ)
        host_settings = read_host_settings(app_dir, os.environ)
    indexed_functions = _import_functions(Path(os.fspath(app)).resolve()) if is_folder else _functions_of(app)
    handle_event: Any = importlib.import_module("azure_functions_runtime.handle_event")
    loader: Any = importlib.import_module("azure_functions_runtime.loader")
    handle_event.protos = worker_messages
    handle_event.load_binding_registry()
    _choose_request_type(indexed_functions)
    try:
        found, _ = loader.process_indexed_function(
            worker_messages,
            handle_event._functions,  # noqa: SLF001 - the runtime's registry
            indexed_functions,
            str(Path.cwd()),
        )
    except Exception as error:
        raise StartupError(explain_refusal(error)) from error
    return describe_app(found), host_settings


def _import_functions(app_dir: Path) -> Sequence[Any]:
    """Import the app's modules again: functions of an imported module belong to an earlier test."""
    script = os.environ.get("PYTHON_SCRIPT_FILE_NAME", "function_app.py")
    if not (app_dir / script).is_file():
        raise StartupError(f"There is no {script} in {app_dir}; give the app's folder.")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_own = file is not None and Path(file).is_relative_to(app_dir) and "site-packages" not in file
        if name == Path(script).stem or (is_own and not name.startswith(("test", "conftest"))):
            del sys.modules[name]
    os.chdir(app_dir)
    sys.path.insert(0, str(app_dir))
    importlib.invalidate_caches()
    loader: Any = importlib.import_module("azure_functions_runtime.loader")
    try:
        return loader.index_function_app(str(app_dir / script))
    except (ValueError, TypeError) as error:
        raise StartupError(explain_refusal(error)) from error


def _functions_of(app: Any) -> Sequence[Any]:
    if not hasattr(app, "get_functions"):  # a blueprint
        functions: Any = importlib.import_module("azure.functions")
        blueprint = app
        app = functions.FunctionApp()
        app.register_functions(blueprint)
    app.functions_bindings = None  # the names that an earlier call has seen
    try:
        return app.get_functions()
    except (ValueError, TypeError) as error:
        raise StartupError(explain_refusal(error)) from error


def _choose_request_type(indexed_functions: Sequence[Any]) -> None:
    """Switch HTTP streaming on or off: the worker library assumes one app per process."""
    registry: Any = importlib.import_module("azure_functions_runtime.http_v2").HttpV2Registry
    registry._http_v2_enabled_checked = False  # noqa: SLF001
    if not registry.http_v2_enabled():
        return
    request_type = registry.ext_base().RequestTrackerMeta.get_request_type()
    registry._http_v2_enabled = any(_accepts_type(function, request_type) for function in indexed_functions)  # noqa: SLF001


def _accepts_type(function: Any, request_type: type) -> bool:
    if not function.is_http_function():
        return False
    try:
        hints = get_type_hints(function.get_user_function())
    except NameError:
        return False  # told later, with the function's name
    return any(isinstance(hint, type) and issubclass(hint, request_type) for hint in hints.values())
