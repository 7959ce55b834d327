"""Settings from the environment and ``local.settings.json``; ``host_json`` reads ``host.json``."""

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from functions_host.errors import StartupError

STOP_SECONDS = "FUNCTIONS_HOST_STOP_SECONDS"
_SETTING = re.compile(r"%([^%]+)%")
_TEXT = r'(?P<text>"(?:[^"\\]|\\.)*")'
_COMMENT = re.compile(rf"{_TEXT}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_TEXT}|,(?=\s*[}}\]])")


@dataclass(frozen=True, slots=True)
class LocalHost:
    """The ``Host`` section of ``local.settings.json``; without ``cors_origins``, no other origin may call.

    ``allowed_hosts`` are additional accepted host names; the Core Tools ignore them.
    """

    port: int | None = None
    cors_origins: tuple[str, ...] = ()
    cors_credentials: bool = False
    allowed_hosts: tuple[str, ...] = ()


def apply_local_settings(app_dir: Path, environment: MutableMapping[str, str]) -> LocalHost:
    """Copy the ``Values`` of ``local.settings.json`` into the environment, unless already set.

    Comments and trailing commas are accepted, as by the Core Tools.

    Returns:
        The ``Host`` section.

    Raises:
        StartupError: the file is not JSON, is encrypted, or its ``Host`` section is invalid.
    """
    path = app_dir / "local.settings.json"
    if not path.is_file():
        return LocalHost()
    body = _parse_object(path, _TRAILING_COMMA.sub(_keep_text, _COMMENT.sub(_keep_text, _read(path))), "")
    if body.get("IsEncrypted") is True:
        raise StartupError(f"{path} is encrypted; run 'func settings decrypt' in the app's folder.")
    if not isinstance(body.get("Values", {}), dict):
        raise StartupError(f'{path}: Values has to be an object of settings, such as {{"NAME": "value"}}.')
    for name, value in section(body, "Values").items():
        if value is not None and name not in environment:
            environment[name] = value if isinstance(value, str) else json.dumps(value)
    return _read_host_section(path, section(body, "Host"))


def _keep_text(match: re.Match[str]) -> str:
    return match["text"] or ""


def _read_host_section(path: Path, host: Mapping[str, Any]) -> LocalHost:
    port = host.get("LocalHttpPort")
    if port is not None:
        try:
            port = int(port)
        except (TypeError, ValueError):
            raise StartupError(f"{path}: Host.LocalHttpPort has to be a port number; it is {port!r}.") from None
    origins = tuple(part.strip().rstrip("/").lower() for part in _split(host.get("CORS")))
    has_credentials = str(host.get("CORSCredentials", "")).lower() == "true"
    if has_credentials and "*" in origins:
        raise StartupError(
            f"{path}: Host.CORSCredentials goes with named origins only; list them in Host.CORS in the place of '*'."
        )
    return LocalHost(port, origins, has_credentials, _split(host.get("AllowedHosts")))


def _split(value: Any) -> tuple[str, ...]:
    parts = cast("list[Any]", value) if isinstance(value, list) else re.split(r"[,;]", str(value or ""))
    return tuple(text for part in parts if (text := str(part).strip()))


def prepare_environment(app_dir: Path, data_dir: Path, port: int, environment: MutableMapping[str, str]) -> None:
    """Set the variables of the real host, and ``FUNCTIONS_HOST_DATA``, a directory for the app's own files."""
    environment["WEBSITE_HOSTNAME"] = f"localhost:{port}"
    environment["AzureWebJobsScriptRoot"] = str(app_dir)
    environment.setdefault("AZURE_FUNCTIONS_ENVIRONMENT", "Development")
    environment.setdefault("FUNCTIONS_WORKER_RUNTIME", "python")
    environment["FUNCTIONS_HOST_DATA"] = str(data_dir)


def read_stop_seconds(environment: Mapping[str, str]) -> float:
    """Return how long running functions may take to end when the host stops: ``FUNCTIONS_HOST_STOP_SECONDS``.

    Raises:
        StartupError: it is not a number of seconds.
    """
    text = environment.get(STOP_SECONDS, "30")
    if not re.fullmatch(r"\d+(?:\.\d+)?", text):
        raise StartupError(f"{STOP_SECONDS} has to be a number of seconds, such as 30; it is {text!r}.")
    return float(text)


def is_disabled(function_name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a setting disables the function; ``.``, ``_`` and ``__`` are equivalent in names."""
    names = (f"AzureWebJobs{mark}{function_name}{mark}Disabled" for mark in (".", "_", "__"))
    return any(environment.get(name, "").lower() in {"true", "1"} for name in names)


def resolve_settings(text: str, environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """Replace each ``%NAME%`` with its app setting; returns the text and the names of missing settings."""
    missing = [name for name in _SETTING.findall(text) if name not in environment]
    return _SETTING.sub(lambda match: environment.get(match[1], match[0]), text), missing


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        StartupError: the file holds something else.
    """
    return _parse_object(path, _read(path), "; the Python SDK reads it without comments")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except ValueError as error:
        raise StartupError(f"{path} is not UTF-8 text ({error}).") from error


def _parse_object(path: Path, text: str, hint: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise StartupError(f"{path} is not valid JSON ({error}){hint}.") from error
    if not isinstance(body, dict):
        raise StartupError(f"{path} must hold a JSON object.")
    return cast("dict[str, Any]", body)


def section(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a nested object; empty when absent or of another type."""
    value = body.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
