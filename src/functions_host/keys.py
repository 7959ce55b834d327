"""Access keys, checked only with ``--enable-auth``: locally every request is an administrator's otherwise.

Source: spec section 2.2.
"""

import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.requests import HTTPConnection

from functions_host.errors import StartupError

_FILE_NAME = "keys.json"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one data directory.

    ``function`` opens functions of the level FUNCTION, ``master`` everything, ``system`` the host's own
    endpoints (Durable Task, MCP). ``own`` is never shown: it is in the address that the app's own durable
    clients call.
    """

    master: str
    function: str
    system: str
    own: str

    def open_function(self, request: HTTPConnection, auth_level: str) -> bool:
        """Say whether a request may call a function of this level."""
        if auth_level == "ANONYMOUS":
            return True
        return (
            _is_one_of(request, self.master)
            if auth_level == "ADMIN"
            else _is_one_of(request, self.master, self.function)
        )

    def open_system(self, request: HTTPConnection) -> bool:
        """Say whether a request may use the host's own endpoints."""
        return _is_one_of(request, self.master, self.system)


def _is_one_of(request: HTTPConnection, *keys: str) -> bool:
    given = request.headers.get("x-functions-key") or request.query_params.get("code") or ""
    return any(hmac.compare_digest(given.encode(), key.encode()) for key in keys)


def load_keys(data_dir: Path) -> Keys:
    """Read the keys of a data directory; the first time, make them.

    Raises:
        StartupError: the file is damaged, or cannot be written.
    """
    path = data_dir / _FILE_NAME
    try:
        if path.is_file():
            return Keys(**json.loads(path.read_text(encoding="utf-8")))
        keys = Keys(*(secrets.token_urlsafe(32) for _ in range(4)))
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(keys), file, indent=2)
    except (OSError, ValueError, TypeError) as error:
        raise StartupError(f"The keys in {path} cannot be used ({error}); delete the file to get new ones.") from error
    return keys
