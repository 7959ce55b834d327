"""Who may import whom, read from the imports."""

import ast
import sys

import pytest

from tests.house.source import PACKAGES, Import, Module, is_below, module_names, modules

_PURE_ROOMS = {"errors", "model", "codec", "turns"}
_STORAGE = {"errors", "model", "codec", "log", "history"}
ALLOWED_ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "settings": {"errors"},
    "model": {"errors"},
    "codec": {"errors", "model"},
    # Stored entries stay JSON until a turn rehydrates them, so turns call the codec, and never the other way.
    "turns": {"errors", "model", "codec"},
    "log": {"errors", "model", "codec"},
    "tool_calls": set(),
    "history": {"errors", "model", "codec", "turns"},  # a history of chunks is folded as a turn is
    "stores": _STORAGE,
    "providers": {"errors", "model", "codec", "turns"},  # a client's own final response is the fold
    "durable": {"errors", "settings", "model", "codec", "turns", "log", "history", "tool_calls"},
    "http": {"errors", "settings", "model", "codec", "log", "durable"},
    "cli": set(),
    "inspector": set(),
}
"""Room of durable_agent_host → rooms that it may import besides itself; ``app`` and the package itself import all."""

HTTP_MAY_USE_OF_DURABLE = {"durable_agent_host.durable.client"}

PURE = (
    *(f"durable_agent_host.{room}" for room in sorted(_PURE_ROOMS)),
    "durable_agent_host.http.parse",
    "durable_agent_host.http.sse",
    "functions_host.engine.decide",
    "functions_host.engine.rewind",
    "functions_host.engine.work",
    "functions_host.engine.entities",
    "functions_host.engine.events",
    "functions_host.engine.sdk_wire",
    "practice_model.derive",
    "practice_model.grammar",
    "practice_model.pairing",
    "practice_model.rules",
)

IMPURE_MODULES = (
    *("asyncio", "concurrent", "contextvars", "ctypes", "fcntl", "glob", "http", "io", "logging", "multiprocessing"),
    *("os", "pathlib", "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3"),
    *("ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib"),
    *("aiohttp", "azure", "httpx", "openai", "requests", "starlette", "uvicorn"),
)

IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "open", "print", "input", "getenv"}

HOMES = {
    "azure.durable_functions": ("durable_agent_host.durable",),
    "azurefunctions": ("durable_agent_host.http",),
    "azure.functions": ("durable_agent_host.app", "durable_agent_host.durable", "durable_agent_host.http"),
    "agent_framework_azurefunctions": ("durable_agent_host.app",),
    "agent_framework_durabletask": ("durable_agent_host.app", "durable_agent_host.durable"),
    "agent_framework_openai": ("durable_agent_host.providers.openai",),
    "openai": ("durable_agent_host.providers.openai",),
    "azure.identity": ("durable_agent_host.providers.openai", "durable_agent_host.stores.blob"),
    "azure.storage": ("durable_agent_host.stores.blob", "durable_agent_host.stores.blob_container"),
    "redis": ("durable_agent_host.stores.redis",),
    "jsonschema": ("durable_agent_host.codec.answer",),
    "azure_functions_runtime": ("functions_host.app_loader", "functions_host.invoke"),
    "sqlite3": (
        "functions_host.engine.database",
        "functions_host.engine.sqlite",
        "functions_host.engine.checkpoints",
        "durable_agent_host.stores.sqlite",
        "durable_agent_host.stores.sqlite_file",
        "durable_agent_host.stores.sqlite_jobs",
    ),
    "uvicorn": ("functions_host.http_server", "practice_model.__main__"),
}
"""Third-party package → the only modules that import it."""


def places(module: Module, found: list[Import]) -> list[str]:
    return [f"{module.at(one.line)} imports {one.module}" for one in found]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_do_not_import_each_other(package):
    """Agents, the embedded host and the practice model know nothing of each other: HTTP is between them."""
    others = [other for other in PACKAGES if other != package]
    wrong = [
        place for module in modules(package) for other in others for place in places(module, module.imports_from(other))
    ]
    assert not wrong


def test_rooms_import_in_one_direction():
    """A room imports only the rooms below it."""
    wrong: list[str] = []
    for module in modules("durable_agent_host"):
        if module.room in {"", "app"}:
            continue
        assert module.room in ALLOWED_ROOMS, f"{module.name}: say in ALLOWED_ROOMS what {module.room} may import"
        for found in module.imports_from("durable_agent_host"):
            room = (*found.module.split("."), "")[1]
            if room not in ALLOWED_ROOMS[module.room] | {module.room}:
                wrong += places(module, [found])
    assert not wrong


def test_http_knows_little_of_durable():
    """Routes start, wait for and read turns through the turn client."""
    wrong = [
        place
        for module in modules("durable_agent_host.http")
        for found in module.imports_from("durable_agent_host.durable")
        if found.module not in HTTP_MAY_USE_OF_DURABLE
        for place in places(module, [found])
    ]
    assert not wrong


def test_exceptions_are_used():
    """An exception that nothing needs any more is taken off the list."""
    used = {(module.name, found.module) for module in modules() for found in module.imports}
    http = {target for name, target in used if is_below(name, "durable_agent_host.http")}
    assert http >= HTTP_MAY_USE_OF_DURABLE


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
            ours = [other for other in modules(*PACKAGES) if other.name == found.module]
            if is_impure or (ours and not found.needs_type_checking and not _is_pure(ours[0])):
                wrong += places(module, [found])
    assert not wrong


def _is_pure(module: Module, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a module, and what it imports of ours, imports no effects. Source: the imports, not the list above."""
    if module.name in seen:
        return True
    seen |= {module.name}
    by_name = {other.name: other for other in modules(*PACKAGES)}
    return not _effects(module) and all(
        not any(is_below(found.module, impure) for impure in IMPURE_MODULES)
        and (found.module not in by_name or _is_pure(by_name[found.module], seen))
        for found in module.imports
        if not found.needs_type_checking
    )


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_call_no_effects(name):
    """Pure modules ask no clock, draw no id and print nothing: such values come as arguments."""
    assert not [place for module in modules(name) for place in _effects(module)]


def _effects(module: Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in IMPURE_CALLS:
                found.append(f"{module.at(node.lineno)} calls {called}")
    return found


@pytest.mark.parametrize("sdk", HOMES)
def test_a_third_party_package_has_one_home(sdk):
    """What a library's next version changes is changed in one place."""
    wrong: list[str] = []
    used = False
    for module in modules():
        for found in module.imports_from(sdk):
            used = True
            is_app_typing = module.name == "durable_agent_host.app" and found.needs_type_checking
            if not any(is_below(module.name, home) for home in HOMES[sdk]) and not is_app_typing:
                wrong += places(module, [found])
    names_it = any(f'"{sdk}' in module.text for home in HOMES[sdk] for module in modules(home))
    assert used or names_it, f"nothing imports {sdk}: take it off the list"
    assert not wrong


def test_provider_sdks_are_imported_inside_functions():
    """An app that does not use a provider does not pay for its SDK."""
    ours = {"durable_agent_host", "agent_framework", *sys.stdlib_module_names}
    wrong = [
        place
        for module in modules("durable_agent_host.providers")
        for found in module.imports
        if found.module.partition(".")[0] not in ours and not found.is_deferred
        for place in places(module, [found])
    ]
    assert not wrong


def test_there_are_no_import_cycles():
    """No module imports itself through others."""
    graph = {
        module.name: sorted({one.module for one in module.imports if one.module in module_names()})
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
