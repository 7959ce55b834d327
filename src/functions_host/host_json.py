"""``host.json``: the keys that this host uses.

Source: the documentation of ``host.json`` of the Functions host and of the Durable Task extension.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from functions_host.engine.worker import Limits
from functions_host.errors import StartupError
from functions_host.settings import read_json_object, resolve_settings, section

_logger = logging.getLogger(__name__)
_DEFAULT_HUB = "TestHubName"
_HUB_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,44}")
_SCHEDULER_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{2,63}")
_DURATION = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?")
_DEFAULT_TIMEOUT_SECONDS = 1800.0
_LOG_LEVELS = {
    "trace": logging.NOTSET,
    "debug": logging.DEBUG,
    "information": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}
_OVERRIDABLE = "overridableExistingInstanceStates"


@dataclass(frozen=True, slots=True)
class McpSettings:
    """Name, version and instructions of the MCP server."""

    server_name: str = "Azure Functions MCP server"
    server_version: str = "1.0.0"
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The settings of ``host.json`` that this host uses; of the storage provider, whether it divides long timers.

    ``timeout_seconds`` is None for no timeout; ``log_levels`` are Python's, by category; ``replaces_running`` allows
    a start to replace a running instance of the same id.
    """

    route_prefix: str = "api"
    hub_name: str = _DEFAULT_HUB
    limits: Limits | None = None
    timeout_seconds: float | None = _DEFAULT_TIMEOUT_SECONDS
    mcp: McpSettings = McpSettings()
    log_levels: Mapping[str, int] = field(default_factory=dict[str, int])
    replaces_running: bool = False

    @property
    def durable_limits(self) -> Limits:
        """The limits in force."""
        return self.limits or Limits.default()


def read_host_settings(app_dir: Path, environment: Mapping[str, str]) -> HostSettings:
    """Read ``host.json``.

    Raises:
        StartupError: the Functions host would not accept the file.
    """
    path = app_dir / "host.json"
    body = read_json_object(path) if path.is_file() else {"version": "2.0"}
    if body.get("version") != "2.0":
        raise StartupError(f'{path} needs "version": "2.0"; it has {body.get("version")!r}.')
    extensions = section(body, "extensions")
    durable = section(extensions, "durableTask")
    default = Limits.default()
    limits = Limits(
        activities=_positive(path, durable, "maxConcurrentActivityFunctions", default.activities),
        orchestrators=_positive(path, durable, "maxConcurrentOrchestratorFunctions", default.orchestrators),
        entities=_positive(path, durable, "maxConcurrentEntityFunctions", default.entities),
        entity_batch_size=_positive(path, durable, "maxEntityOperationBatchSize", default.entity_batch_size),
        has_timer_legs=_provider(durable) in {"", "azurestorage"},
    )
    prefix = section(extensions, "http").get("routePrefix", "api")
    mcp = section(extensions, "mcp")
    default_mcp = McpSettings()
    return HostSettings(
        str(prefix).strip("/"),
        _hub_name(path, durable, environment),
        limits,
        _timeout(path, body.get("functionTimeout")),
        McpSettings(
            str(mcp.get("serverName") or default_mcp.server_name),
            str(mcp.get("serverVersion") or default_mcp.server_version),
            str(mcp.get("instructions") or ""),
        ),
        dict(_log_levels(path, section(section(body, "logging"), "logLevel"))),
        _replaces_running(path, durable.get(_OVERRIDABLE)),
    )


def _log_levels(path: Path, levels_by_category: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    for category, value in levels_by_category.items():
        name = str(value).lower()
        if name in _LOG_LEVELS:
            yield category, _LOG_LEVELS[name]
        else:
            _logger.warning(
                "%s: logging.logLevel.%s is %r, which is no level and is ignored; the levels are Trace, Debug, "
                "Information, Warning, Error, Critical and None.",
                *(path, category, value),
            )


def _positive(path: Path, values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key)
    if value is None:
        return default
    if not str(value).isdecimal() or int(value) <= 0:
        raise StartupError(f"{path}: extensions.durableTask.{key} has to be a whole number above 0; it is {value!r}.")
    return int(value)


def _hub_name(path: Path, durable: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    configured_name = str(durable.get("hubName") or _DEFAULT_HUB)
    name, missing = resolve_settings(configured_name, environment)
    if missing:
        _logger.info("%s: hubName %r names settings that are not set: %s is used.", path, configured_name, _DEFAULT_HUB)
        return _DEFAULT_HUB
    is_scheduler = _provider(durable) in {"azuremanaged", "durabletask-scheduler"}
    if not (_SCHEDULER_HUB_NAME if is_scheduler else _HUB_NAME).fullmatch(name):
        raise StartupError(
            f"{path}: extensions.durableTask.hubName is {name!r}; a task hub's name has 3 to 45 letters and digits and "
            "starts with a letter."
        )
    return name


def _provider(durable: Mapping[str, Any]) -> str:
    return str(section(durable, "storageProvider").get("type", "")).lower()


def _replaces_running(path: Path, value: Any) -> bool:
    chosen = str(value or "NonRunningStates").lower()
    if chosen not in {"anystate", "nonrunningstates"}:
        raise StartupError(
            f"{path}: extensions.durableTask.{_OVERRIDABLE} has to be NonRunningStates or AnyState; it is {value!r}."
        )
    return chosen == "anystate"


def _timeout(path: Path, value: Any) -> float | None:
    if value is None:
        return _DEFAULT_TIMEOUT_SECONDS
    if str(value) in {"-1", "-00:00:00.0010000", "-00:00:01"}:
        return None
    found = _DURATION.fullmatch(str(value))
    if found is None:
        raise StartupError(f'{path}: functionTimeout has to look like "00:30:00", or "-1" for none; it is {value!r}.')
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 86_400.0 + hours * 3600 + minutes * 60 + seconds
