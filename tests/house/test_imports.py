"""Who may import whom, read from the imports."""

import ast
import sys
from functools import cache

import pytest

from tests.house.source import DEMO, PACKAGES, SHARED, Import, Module, is_below, module_names, modules

_PURE_ROOMS = {"redaction", "errors", "model", "codec", "session", "turn", "stream"}
ALLOWED_ROOMS: dict[str, set[str]] = {
    "redaction": set(),
    "log_redaction": {"redaction"},
    "errors": set(),
    "hook_validation": {"errors"},
    "settings": {"errors", "model"},
    "tool_calls": {"model"},
    "concurrency": {"errors"},
    "model": {"errors"},
    "codec": {"errors", "model"},
    # Stored entries stay JSON until a turn rehydrates them, so these call the codec, and never the other way.
    "turn": {"errors", "redaction", "model", "codec"},
    "session": {"errors", "model", "codec", "turn", "stream"},  # receipts tell requests and the answer's text
    "stream": {"errors", "model", "codec", "turn"},
    "storage": {"errors", "concurrency"},
    "turn_log": {"errors", "model", "codec", "turn", "concurrency", "storage"},
    "segments": {
        *("errors", "model", "codec", "session", "stream", "turn", "turn_log", "concurrency", "storage"),
    },
    "encryption": {
        *("errors", "redaction", "model", "codec", "turn_log", "segments", "concurrency"),
    },
    "store_factory": {"errors", "settings", "turn_log", "segments", "encryption", "concurrency"},
    "agent": {
        *("errors", "redaction", "model", "codec", "session", "turn", "stream", "segments", "turn_log", "concurrency"),
        *("tool_calls", "hook_validation"),
    },
    "providers": {"errors", "redaction", "model", "codec", "stream", "agent", "concurrency"},
    "features": {"errors", "model", "codec", "session", "turn", "stream", "turn_log", "concurrency", "agent"},
    "durable": {
        *("errors", "settings", "model", "codec", "session", "turn", "stream", "segments", "turn_log", "concurrency"),
        *("encryption", "agent"),
    },
    "http": {
        *("errors", "settings", "model", "codec", "session", "turn", "turn_log", "segments", "durable", "concurrency"),
        *("hook_validation", "agent_client"),
    },
    "protocols": {"errors", "model", "codec", "turn", "durable", "http"},
    "agent_client": {"errors", "model", "turn"},
    "inspector": set(),
    "telemetry": {"errors", "redaction", "model", "turn", "agent"},
    "webhooks": {"errors", "hook_validation", "settings", "model"},
    "conversation_json": {"errors", "model", "codec", "stream", "providers"},
    "activities": {
        *("errors", "settings", "model", "codec", "turn", "turn_log", "store_factory", "agent", "providers"),
        *("telemetry",),
    },
    "cli": {"errors", "model", "turn", "providers", "conversation_json", "agent_client"},
}
"""Room of durable_agent_host → rooms that it may import besides itself; ``app`` and the package itself import all."""

_HOST_BASICS = {"errors", "settings", "data_dir", "host_names", "host_json"}
ALLOWED_ROOMS_OF_THE_HOST: dict[str, set[str]] = {
    "errors": set(),
    "settings": {"errors"},
    "data_dir": {"errors"},
    "host_names": {"errors"},
    "host_json": {"errors", "settings", "engine"},
    "engine": set(),
    "app": {"errors", "settings", "host_names", "engine"},
    "triggers": _HOST_BASICS | {"engine", "app"},
    "web": _HOST_BASICS | {"engine", "app", "triggers"},
    "app_host": _HOST_BASICS | {"engine", "app", "triggers", "web"},
    "startup_report": {"app", "web"},
    "log_secrets": set(),
    "memory": set(),
    "argument_parser": set(),
}
"""Room of functions_host → rooms that it may import besides itself; what starts the host, and testing, import all."""

ALLOWED_ROOMS_OF_THE_MODEL: dict[str, set[str]] = {
    "testing": set(),
    "dialects": set(),
    "rules": {"dialects", "store"},
    "play": {"dialects", "rules"},
    "store": {"dialects"},
    "exchange": {"dialects", "play"},
    "services": {"dialects", "rules", "play", "store", "exchange"},
}
"""The same of practice_model; the server imports all."""

ROOMS = {
    "durable_agent_host": (ALLOWED_ROOMS, {"", "__main__", "app"}),
    "functions_host": (ALLOWED_ROOMS_OF_THE_HOST, {"", "__main__", "cli", "host", "testing"}),
    "practice_model": (ALLOWED_ROOMS_OF_THE_MODEL, {"", "__main__", "server"}),
}
"""Package → its table, and the rooms that import all."""

DOORS: dict[tuple[str, str], set[str]] = {
    ("http", "durable"): {"turn_client"},
    ("http", "segments"): {"blob_cache", "conversation_pages"},
    ("protocols", "durable"): {"turn_client"},
    ("protocols", "http"): {"gate"},
    ("providers", "agent"): {
        "response_limits",
        "http_exchange",
        "provider",
        "retry_classification",
        "dynamic_subclass",
    },
    ("stream", "turn"): {"turn_events"},
    ("telemetry", "agent"): {"observer"},
    ("turn_log", "turn"): {"turn_events"},
}
"""Room of durable_agent_host, room that it may import → the only modules of it that it imports, each of them.

Routes and dialects start and read turns through the turn client, dialects pass the gate; a provider implements the
port, and knows nothing of how a turn runs; the stream and the log know the events of a turn, and nothing else of it.
"""

_PURE_ENGINE = ("decide", "decision", "entities", "events", "packing", "sdk_wire", "walk")

PURE = (
    *(f"durable_agent_host.{folder}" for folder in sorted(_PURE_ROOMS)),
    "durable_agent_host.http.body_parsing",
    "durable_agent_host.http.parse",
    "durable_agent_host.http.sse",
    *(f"functions_host.engine.{name}" for name in _PURE_ENGINE),
    "ncrontab",
    "practice_model.dialects",
    "practice_model.play.derived_calls",
    "practice_model.rules",
)

IMPURE_MODULES = (
    *("asyncio", "concurrent", "contextvars", "ctypes", "fcntl", "glob", "http", "io", "logging", "multiprocessing"),
    *("os", "pathlib", "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3"),
    *("ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib"),
    *("aiohttp", "azure", "httpx", "openai", "requests", "starlette", "uvicorn"),
)

IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "open", "print", "input", "getenv"}

ALLOWED_PACKAGES = {
    "azure.durable_functions": ("durable_agent_host.durable",),
    "azurefunctions": ("durable_agent_host.http",),
    "azure.functions": ("durable_agent_host.app", "durable_agent_host.durable", "durable_agent_host.http"),
    "agent_framework_azurefunctions": ("durable_agent_host.app",),
    "agent_framework_durabletask": (
        "durable_agent_host.app",
        "durable_agent_host.durable",
        "durable_agent_host.agent.observer",
    ),
    "httpx2": ("durable_agent_host.agent_client", "durable_agent_host.http.route_transport"),
    "agent_framework_openai": ("durable_agent_host.providers.openai",),
    "openai": ("durable_agent_host.providers.openai",),
    "agent_framework_gemini": ("durable_agent_host.providers.gemini",),
    "google": ("durable_agent_host.providers.gemini",),
    "azure.ai": ("durable_agent_host.providers.azure_ai_agents",),
    "azure.identity": (
        "durable_agent_host.providers.openai",
        "durable_agent_host.providers.azure_ai_agents",
        "durable_agent_host.storage.azure_blob_container",
        "durable_agent_host.encryption.key_wrapping",
    ),
    "azure.keyvault": ("durable_agent_host.encryption.key_wrapping",),
    "azure.storage": (
        "durable_agent_host.storage.azure_blob_container",
        "durable_agent_host.turn_log.blob",
        "durable_agent_host.segments.blob_store",
    ),
    "opentelemetry": ("durable_agent_host.telemetry",),
    "redis": ("durable_agent_host.turn_log.redis_log",),
    "jsonschema": ("durable_agent_host.turn.response_format",),
    "azure_functions_runtime": ("functions_host.app.loader", "functions_host.app.invoker"),
    "sqlite3": (
        "functions_host.engine.database",
        "functions_host.engine.sqlite_store",
        "functions_host.engine.checkpoints",
        "functions_host.engine.schema",
        "sqlite_store.file",
        "durable_agent_host.storage.sqlite_worker",
        "durable_agent_host.turn_log.sqlite_log",
        "durable_agent_host.segments.sqlite_store",
    ),
    "uvicorn": ("functions_host.web.server", "practice_model.__main__"),
}
"""Third-party package → the only modules that import it."""


def describe_imports(module: Module, found: list[Import]) -> list[str]:
    return [f"{module.at(found_import.line)} imports {found_import.module}" for found_import in found]


@pytest.mark.parametrize("package", [*PACKAGES, *SHARED, DEMO])
def test_packages_do_not_import_each_other(package):
    """Agents, embedded host, practice model and demo do not import each other: HTTP is between them."""
    other_packages = [other for other in PACKAGES if other != package]
    wrong = [
        violation
        for module in modules(package)
        for other in other_packages
        for violation in describe_imports(module, module.imports_from(other))
    ]
    assert not wrong


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_in_one_direction(package):
    """A room imports only the rooms below it."""
    allowed_folders, unbound = ROOMS[package]
    wrong: list[str] = []
    for module in modules(package):
        if module.folder in unbound:
            continue
        assert module.folder in allowed_folders, f"{module.name}: say in ROOMS what {module.folder} may import"
        for found in module.imports_from(package):
            folder = (*found.module.split("."), "")[1]
            if folder not in allowed_folders[module.folder] | {module.folder}:
                wrong += describe_imports(module, [found])
    assert not wrong


@pytest.mark.parametrize(("folder", "other"), sorted(DOORS))
def test_a_folder_is_imported_through_its_public_modules(folder, other):
    """Of some rooms another one imports few modules, and none stays on the list that it does not import."""
    found = [
        (module, found_import)
        for module in modules(f"durable_agent_host.{folder}")
        for found_import in module.imports_from(f"durable_agent_host.{other}")
    ]
    doors = {f"durable_agent_host.{other}.{name}" for name in DOORS[folder, other]}
    wrong = [
        violation
        for module, found_import in found
        if found_import.module not in doors
        for violation in describe_imports(module, [found_import])
    ]
    assert not wrong
    assert {found_import.module for _, found_import in found} == doors


def test_pure_packages_exist():
    """The list of pure modules names modules that are there."""
    assert set(PURE) <= module_names()


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_import_no_effects(name):
    """Pure modules import no IO, no clock and no random source, and of our own only pure modules."""
    wrong: list[str] = []
    for module in modules(name):
        for found in module.imports:
            is_impure = any(is_below(found.module, impure) for impure in IMPURE_MODULES)
            imported_modules = [other for other in modules(*PACKAGES) if other.name == found.module]
            if is_impure or (imported_modules and not found.needs_type_checking and not _is_pure(imported_modules[0])):
                wrong += describe_imports(module, [found])
    assert not wrong


@cache
def _is_pure(module: Module) -> bool:
    """Whether a module, and what it imports of ours, imports no effects. Source: the imports, not the list above."""
    by_name = {other.name: other for other in modules(*PACKAGES)}
    visited, ahead = {module.name}, [module]
    while ahead:
        current = ahead.pop()
        names = [found.module for found in current.imports if not found.needs_type_checking]
        if _effects(current) or any(is_below(name, impure) for name in names for impure in IMPURE_MODULES):
            return False
        new = {name for name in names if name in by_name} - visited
        visited |= new
        ahead += [by_name[name] for name in new]
    return True


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_call_no_effects(name):
    """Pure modules ask no clock, draw no id and print nothing: such values come as arguments."""
    assert not [violation for module in modules(name) for violation in _effects(module)]


def _effects(module: Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            function_name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function_name in IMPURE_CALLS:
                found.append(f"{module.at(node.lineno)} calls {function_name}")
    return found


@pytest.mark.parametrize("sdk", ALLOWED_PACKAGES)
def test_a_third_party_package_is_imported_by_one_package(sdk):
    """What a library's next version changes is changed in one place."""
    wrong: list[str] = []
    used = False
    for module in modules():
        for found in module.imports_from(sdk):
            used = True
            is_app_typing = module.name == "durable_agent_host.app" and found.needs_type_checking
            if not any(is_below(module.name, package) for package in ALLOWED_PACKAGES[sdk]) and not is_app_typing:
                wrong += describe_imports(module, [found])
    names_it = any(f'"{sdk}' in module.text for package in ALLOWED_PACKAGES[sdk] for module in modules(package))
    assert used or names_it, f"nothing imports {sdk}: take it off the list"
    assert not wrong


def test_provider_sdks_are_imported_inside_functions():
    """An app that does not use a provider does not pay for its SDK."""
    allowed_packages = {"durable_agent_host", "agent_framework", *sys.stdlib_module_names}
    wrong = [
        violation
        for module in modules("durable_agent_host.providers")
        for found in module.imports
        if found.module.partition(".")[0] not in allowed_packages and not found.is_deferred
        for violation in describe_imports(module, [found])
    ]
    assert not wrong


def test_a_layer_of_calls_imports_no_layer_and_nothing_of_everything():
    """A layer gets ports: it knows neither another layer, nor the run, the turn or the agent that it serves."""
    layers = "durable_agent_host.agent.layers"
    whole = [f"durable_agent_host.agent.{name}" for name in ("agent_runs", "agent_runner", "hosted_agent")]
    wrong = [
        violation
        for module in modules(layers)
        for name in (layers, *whole)
        for violation in describe_imports(module, module.imports_from(name))
    ]
    assert not wrong


def test_there_are_no_import_cycles():
    """No module imports itself through others."""
    graph = {
        module.name: sorted(
            {found_import.module for found_import in module.imports if found_import.module in module_names()}
        )
        for module in modules()
    }
    done: set[str] = set()
    for start in graph:
        cycle = _find_cycle(graph, start, (), done)
        assert not cycle, " → ".join(cycle)


def _find_cycle(graph: dict[str, list[str]], name: str, path: tuple[str, ...], done: set[str]) -> tuple[str, ...]:
    if name in path:
        return (*path[path.index(name) :], name)
    if name in done:
        return ()
    for target in graph[name]:
        if cycle := _find_cycle(graph, target, (*path, name), done):
            return cycle
    done.add(name)
    return ()
