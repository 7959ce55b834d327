"""What the host reads from an app's folder: ``host.json`` and ``local.settings.json``."""

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from functions_host.engine.worker import Limits
from functions_host.errors import StartupError

_DEFAULT_HUB = "TestHubName"
_SETTING = re.compile(r"%([^%]+)%")


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The parts of ``host.json`` that have a meaning here; the storage provider has none."""

    route_prefix: str = "api"
    hub_name: str = _DEFAULT_HUB
    limits: Limits | None = None

    @property
    def durable_limits(self) -> Limits:
        """The limits in force."""
        return self.limits or Limits.default()


def read_host_settings(app_dir: Path, environment: Mapping[str, str]) -> HostSettings:
    """Read ``host.json``; a missing file means defaults.

    Raises:
        StartupError: the file is not what the Functions host accepts.
    """
    path = app_dir / "host.json"
    if not path.is_file():
        return HostSettings()
    body = _read_json_object(path)
    if body.get("version") != "2.0":
        raise StartupError(f'{path} needs "version": "2.0"; it has {body.get("version")!r}.')
    extensions = _section(body, "extensions")
    durable = _section(extensions, "durableTask")
    hub_name = _resolve(str(durable.get("hubName") or _DEFAULT_HUB), environment)
    default = Limits.default()
    limits = Limits(
        activities=_positive(durable, "maxConcurrentActivityFunctions", default.activities),
        orchestrators=_positive(durable, "maxConcurrentOrchestratorFunctions", default.orchestrators),
        entities=_positive(durable, "maxConcurrentEntityFunctions", default.entities),
        entity_batch_size=_positive(durable, "maxEntityOperationBatchSize", default.entity_batch_size),
    )
    prefix = _section(extensions, "http").get("routePrefix", "api")
    return HostSettings(str(prefix).strip("/"), hub_name, limits)


def apply_local_settings(app_dir: Path, environment: MutableMapping[str, str]) -> None:
    """Put the ``Values`` of ``local.settings.json`` into the environment, where not already set.

    Raises:
        StartupError: the file is not JSON.
    """
    path = app_dir / "local.settings.json"
    if not path.is_file():
        return
    for name, value in _section(_read_json_object(path), "Values").items():
        if value is not None and name not in environment:
            environment[name] = value if isinstance(value, str) else json.dumps(value)


def prepare_environment(app_dir: Path, data_dir: Path, port: int, environment: MutableMapping[str, str]) -> None:
    """Set what the real host sets, and ``FUNCTIONS_HOST_DATA``: where an app may keep files of its own."""
    environment["WEBSITE_HOSTNAME"] = f"localhost:{port}"
    environment["AzureWebJobsScriptRoot"] = str(app_dir)
    environment.setdefault("AZURE_FUNCTIONS_ENVIRONMENT", "Development")
    environment.setdefault("FUNCTIONS_WORKER_RUNTIME", "python")
    environment["FUNCTIONS_HOST_DATA"] = str(data_dir)


def is_disabled(function_name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether a setting turns the function off."""
    values = (environment.get(f"AzureWebJobs{separator}{function_name}{separator}Disabled", "") for separator in "._")
    return any(value.lower() in {"true", "1"} for value in values)


def _read_json_object(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise StartupError(f"{path} is not valid JSON ({error}); the Python SDK reads it without comments.") from error
    if not isinstance(body, dict):
        raise StartupError(f"{path} must hold a JSON object.")
    return cast("dict[str, Any]", body)


def _section(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _positive(section: Mapping[str, Any], key: str, default: int) -> int:
    value = section.get(key)
    return value if isinstance(value, int) and value > 0 else default


def _resolve(text: str, environment: Mapping[str, str]) -> str:
    return _SETTING.sub(lambda match: environment.get(match[1], match[0]), text)
