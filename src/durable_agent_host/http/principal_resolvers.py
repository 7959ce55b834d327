"""Ready-made functions for `DurableAgentApp(identify=…)`: identify callers by what the platform reports."""

import base64
import binascii
import json
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, cast

from durable_agent_host.errors import ForbiddenError
from durable_agent_host.http.gate import Identify, IncomingRequest
from durable_agent_host.model.principal import Principal

AUTH_ENABLED: Final = "WEBSITE_AUTH_ENABLED"
"""Set by App Service where its authentication is on; only there does it replace the headers below.

Source: "Environment variables and app settings in Azure App Service", and "Work with user identities".
"""

_ENTRA: Final = "aad"
_HEADER: Final = "x-ms-client-principal"
_CLAIMS: Final = "http://schemas.microsoft.com/identity/claims/"
_NAME_ID: Final = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/nameidentifier"
_IDS: Final = (_CLAIMS + "objectidentifier", "oid", _NAME_ID, "sub")
_TENANTS: Final = (_CLAIMS + "tenantid", "tid")
_ROLES: Final = frozenset({"roles", "role", "http://schemas.microsoft.com/ws/2008/06/identity/claims/role"})


async def app_service_principal(request: IncomingRequest) -> Principal | None:
    """Identify callers by the authentication of App Service ("Easy Auth").

    The header is trusted only where the platform reports that its authentication is on: then it removes this header
    from callers' requests. On another host, anybody could send it.

    Returns:
        The principal: the user's object id, or another provider's id of the user; the tenant is that of Entra ID, or
        the provider's name, followed by the tenant that it names. None for a caller who has not signed in.

    Raises:
        ForbiddenError: the platform does not report that its authentication is on, or its header cannot be read.
    """
    if os.environ.get(AUTH_ENABLED, "").casefold() != "true":
        raise ForbiddenError(f"App Service authentication is not enabled: {AUTH_ENABLED} is not true")
    header = request.headers.get(_HEADER)
    return _principal_of(header) if header else None


def _principal_of(header: str) -> Principal:
    try:
        payload: Any = json.loads(base64.b64decode(header, validate=True))
        fields = cast("Mapping[str, Any]", payload)
        claims = [(str(claim["typ"]), str(claim["val"])) for claim in fields["claims"]]
        provider = str(fields["auth_typ"])
        role_type = str(fields.get("role_typ") or "")
    except (ValueError, TypeError, KeyError, binascii.Error):
        raise ForbiddenError(f"the header {_HEADER} is not what App Service writes") from None
    values_by_type = dict(reversed(claims))  # the first of several of one type wins
    user = next((values_by_type[name] for name in _IDS if values_by_type.get(name)), None)
    if user is None:
        raise ForbiddenError(f"the header {_HEADER} has no claim that names the caller")
    tenant = next((values_by_type[name] for name in _TENANTS if values_by_type.get(name)), "")
    if provider != _ENTRA:  # another provider may write any tenant, and ids of users that Entra ID has, too
        tenant = f"{provider}/{tenant}" if tenant else provider
    roles = frozenset(value for name, value in claims if name == role_type or name in _ROLES)
    return Principal(user, tenant or provider, roles)


def function_key_principals(names: Mapping[str, str] | None = None) -> Identify:
    """Make a function that identifies callers by their function key: whoever has the key is the principal.

    The Functions host checks the key (``http_auth_level`` FUNCTION) and does not tell the app its name. So a key not
    listed here is a principal of its own, whose id is a hash of the key; renewing it makes a new principal. Give all
    keys of one client the same name, and it keeps its sessions when a key is renewed. Calls of MCP tools carry no key.
    Several keys in one request identify nobody: the host checks only one of them, so the others could be forged.

    Returns:
        A function for ``identify``; without a key it identifies nobody.
    """
    names_by_hash = {_hash(key): name for key, name in (names or {}).items()}

    async def identify(request: IncomingRequest) -> Principal | None:
        keys = [value for name, value in request.query.items() if name.lower() == "code"]
        if "x-functions-key" in request.headers:  # the host then ignores the query
            keys = [request.headers["x-functions-key"]]
        key = keys[0] if len(keys) == 1 else ""
        if not key or "," in key:  # repeated headers and parameters are joined
            return None
        return Principal(names_by_hash.get(_hash(key)) or f"key-{_hash(key)[:32]}")

    return identify


def _hash(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
