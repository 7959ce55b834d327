"""Access keys, checked only with ``--enable-auth``; without it, every request has all rights.

Source: "Work with access keys" of the Azure Functions documentation.
"""

import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.requests import HTTPConnection

from functions_host.data_dir import open_private
from functions_host.errors import StartupError

KEYS_NAME = "keys.json"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one data directory.

    ``function`` grants functions of the level FUNCTION, ``master`` everything, ``system`` the host's own endpoints
    (Durable Task, MCP). ``own`` is secret: it is in the address that the app's own durable clients call.
    """

    master: str
    function: str
    system: str
    own: str

    @property
    def all(self) -> tuple[str, ...]:
        """All keys, to be masked in logs."""
        return self.master, self.function, self.system, self.own

    def open_function(self, request: HTTPConnection, auth_level: str) -> bool:
        """Return whether a request may call a function of this level."""
        if auth_level == "ANONYMOUS":
            return True
        return (
            _is_one_of(request, self.master)
            if auth_level == "ADMIN"
            else _is_one_of(request, self.master, self.function)
        )

    def open_system(self, request: HTTPConnection) -> bool:
        """Return whether a request may use the host's own endpoints."""
        return _is_one_of(request, self.master, self.system)


def _is_one_of(request: HTTPConnection, *keys: str) -> bool:
    presented_key = request.headers.get("x-functions-key")
    if presented_key is None:  # the first parameter in any case, as the platform takes it
        presented_key = next(
            (value for name, value in request.query_params.multi_items() if name.lower() == "code"), ""
        )
    return any(hmac.compare_digest(presented_key.encode(), key.encode()) for key in keys)


def load_keys(data_dir: Path) -> Keys:
    """Read the keys of a data directory; creates them the first time.

    Raises:
        StartupError: the file is damaged or not writable.
    """
    path = data_dir / KEYS_NAME
    try:
        if path.is_file():
            stored = json.loads(path.read_text(encoding="utf-8-sig"))
            return Keys(stored["master"], stored["function"], stored["system"], stored["own"])
        keys = Keys(*(secrets.token_urlsafe(32) for _ in range(4)))
        with open_private(path, "x") as file:
            json.dump(asdict(keys), file, indent=2)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StartupError(f"The keys in {path} cannot be used ({error}); delete the file to get new ones.") from error
    return keys
