"""An app whose sessions belong to the users of an identity provider: a token is checked against the provider's keys.

Set JWKS_URL, JWT_ISSUER and JWT_AUDIENCE, for Entra ID:
https://login.microsoftonline.com/TENANT/discovery/v2.0/keys, https://login.microsoftonline.com/TENANT/v2.0, and the
application's id.
"""

import os
from typing import Any

import azure.functions as func
import jwt
from agent_framework import Agent

from durable_agent_host import DurableAgentApp, Principal
from durable_agent_host.errors import ForbiddenError
from durable_agent_host.http.gate import Action, AuthorizationTarget, IncomingRequest
from durable_agent_host.providers.openai import chat_client_from_environment

KEYS = jwt.PyJWKClient(
    os.environ["JWKS_URL"], timeout=5
)  # keeps the keys, and asks again for one that it does not know, at most every 30 seconds


def identify(request: IncomingRequest) -> Principal | None:
    """Find out who asks; a plain function, which runs in a thread while the keys are fetched."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    try:
        key = KEYS.get_signing_key_from_jwt(token)
        claims: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=["RS256", "ES256"],  # never what the token itself names
            issuer=os.environ["JWT_ISSUER"],
            audience=os.environ["JWT_AUDIENCE"],
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
    except jwt.PyJWTError as error:
        raise ForbiddenError("the token is not valid: sign in again") from error
    return Principal(claims.get("oid") or claims["sub"], claims.get("tid", ""), frozenset(claims.get("roles", ())))


def authorize(principal: Principal, action: Action, session: AuthorizationTarget) -> bool:
    """Let support read what belongs to users of its own tenant."""
    is_same_tenant = session.owner is not None and session.owner.tenant == principal.tenant
    return is_same_tenant and "support" in principal.roles and action in {"session.read", "turn.read", "files.read"}


helper = Agent(chat_client_from_environment(), "You are helpful.", name="Helper")
app = DurableAgentApp(agents=[helper], http_auth_level=func.AuthLevel.ANONYMOUS, identify=identify, authorize=authorize)
