"""Ready-made ways to find out who asks."""

import asyncio
import base64
import json
from typing import Any, cast

import pytest

from durable_agent_host import Principal, Settings
from durable_agent_host.errors import ForbiddenError, RegistrationError, SettingError
from durable_agent_host.http.gate import Authorizer, IncomingRequest
from durable_agent_host.http.principal_resolvers import AUTH_ENABLED, app_service_principal, function_key_principals

ENTRA = {
    "auth_typ": "aad",
    "name_typ": "name",
    "role_typ": "roles",
    "claims": [
        {"typ": "http://schemas.microsoft.com/identity/claims/tenantid", "val": "contoso-id"},
        {"typ": "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/nameidentifier", "val": "pairwise"},
        {"typ": "http://schemas.microsoft.com/identity/claims/objectidentifier", "val": "ada-id"},
        {"typ": "roles", "val": "support"},
        {"typ": "roles", "val": "finance"},
    ],
}


def build_request(header: str | None = None, **headers: str) -> IncomingRequest:
    """A request with the platform's header."""
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return IncomingRequest(header_fields | ({"x-ms-client-principal": header} if header is not None else {}), {})


def encode(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def test_app_services_header_names_user_tenant_and_roles(monkeypatch: pytest.MonkeyPatch):
    """Of Entra ID's claims the object id and the tenant's; of another provider's the user's id, in the provider."""
    monkeypatch.setenv(AUTH_ENABLED, "True")
    found = asyncio.run(app_service_principal(build_request(encode(ENTRA))))
    assert found == Principal("ada-id", "contoso-id", frozenset({"support", "finance"}))
    google = {"auth_typ": "google", "claims": [{"typ": "sub", "val": "42"}]}
    assert asyncio.run(app_service_principal(build_request(encode(google)))) == Principal("42", "google")
    assert asyncio.run(app_service_principal(build_request())) is None


def test_two_providers_never_name_the_same_principal(monkeypatch: pytest.MonkeyPatch):
    """Whatever ids and tenant another provider writes, its users are not those of Entra ID or of a third one."""
    monkeypatch.setenv(AUTH_ENABLED, "true")
    same = [{"typ": "oid", "val": "ada-id"}, {"typ": "sub", "val": "ada-id"}, {"typ": "tid", "val": "contoso-id"}]
    found = [
        asyncio.run(app_service_principal(build_request(encode({"auth_typ": provider, "claims": claims}))))
        for claims in (same, same[:2], [*same[:2], {"typ": "tid", "val": "fabrikam-id"}])
        for provider in ("aad", "google", "our-openid")
    ]
    assert Principal("ada-id", "contoso-id") in found
    assert len({(principal.id, principal.tenant) for principal in found if principal}) == len(found)


@pytest.mark.parametrize(
    "header", ["", "%%%", encode([]), encode({"claims": []}), encode({"auth_typ": "a", "claims": []})]
)
def test_a_malformed_platform_header_is_rejected(monkeypatch: pytest.MonkeyPatch, header):
    """A header that cannot be read identifies nobody."""
    monkeypatch.setenv(AUTH_ENABLED, "true")
    if not header:
        assert asyncio.run(app_service_principal(build_request(header))) is None
        return
    with pytest.raises(ForbiddenError):
        asyncio.run(app_service_principal(build_request(header)))


def test_the_platform_header_is_ignored_outside_the_platform(monkeypatch: pytest.MonkeyPatch):
    """Where the platform's authentication is not on, everybody could send the header."""
    monkeypatch.delenv(AUTH_ENABLED, raising=False)
    with pytest.raises(ForbiddenError, match=AUTH_ENABLED):
        asyncio.run(app_service_principal(build_request(encode(ENTRA))))


def test_a_function_key_is_a_principal():
    """Keys that are named have the name, others a hash; the key itself is in no id."""
    gate = Authorizer(function_key_principals({"old-key": "desk", "new-key": "desk"}))

    def identify(**headers: str) -> Principal | None:
        return asyncio.run(gate.identify(build_request(**headers), "turn.run")).principal

    assert identify(x_functions_key="old-key") == identify(x_functions_key="new-key") == Principal("desk")
    hashed_principal = identify(x_functions_key="some-key")
    assert hashed_principal not in (None, identify(x_functions_key="other-key"))
    assert "some-key" not in str(hashed_principal)
    for headers in ({}, {"x_functions_key": "old-key,other"}, {"x_functions_key": "other,old-key"}):
        with pytest.raises(ForbiddenError):
            identify(**headers)


@pytest.mark.parametrize(
    ("header", "query", "key"),
    [
        (None, {"CODE": "a"}, "a"),
        (None, {"Code": "a", "other": "b"}, "a"),
        (None, {"CODE": "a", "code": "b"}, None),
        (None, {"code": "a,b"}, None),
        ("a", {"code": "b"}, "a"),
        ("", {"code": "b"}, None),
    ],
)
def test_the_key_that_the_host_checks_is_the_principal(header: str | None, query: dict[str, str], key: str | None):
    """The header before the query, in any case; of several parameters the host checks one, so they name nobody."""
    headers = {} if header is None else {"x-functions-key": header}
    identify = function_key_principals({"a": "desk", "b": "somebody else"})
    found: Any = identify(IncomingRequest(headers, query))
    assert asyncio.run(found) == (Principal("desk") if key else None)


def test_who_may_adopt_is_a_setting():
    """Everybody, nobody, or who has a role; another word stops the start."""
    name = "DURABLE_AGENT_HOST_ADOPT_SESSIONS"
    for value, plain, clerk in (("anybody", True, True), ("nobody", False, False), ("role:clerk", False, True)):
        gate = Authorizer(function_key_principals(), adopters=Settings.from_environment({name: value}).adopt_sessions)
        assert gate.rules.may_adopt(Principal("ada")) is plain
        assert gate.rules.may_adopt(Principal("ada", roles=frozenset({"clerk"}))) is clerk
    for value in ("role:", "everybody", "clerk"):
        with pytest.raises(SettingError, match=name):
            Settings.from_environment({name: value})


def test_what_is_no_principal_is_no_caller():
    """A function that returns a text is a mistake of the app, and lets nobody in."""
    with pytest.raises(TypeError, match="Principal"):
        asyncio.run(Authorizer(lambda _: "ada").identify(build_request(), "turn.run"))
    with pytest.raises(ValueError, match="id"):
        Principal("")
    with pytest.raises(RegistrationError, match="identify"):
        Authorizer(None, authorize=lambda *_: True)


@pytest.mark.parametrize(
    "fields",
    [{"id": 42}, {"id": None}, {"id": "ada", "tenant": 7}, {"id": "ada", "roles": "admin"}, {"id": "a", "roles": [1]}],
)
def test_fields_of_a_principal_must_be_strings(fields: dict[str, Any]):
    """A number would be stored as it is and be nobody afterwards; of a text as roles, each letter would be one."""
    with pytest.raises(ValueError, match="principal's"):
        Principal(**fields)


def test_roles_can_be_any_collection():
    """They are kept as a set."""
    assert Principal("ada", roles=cast("Any", ["clerk", "clerk"])).roles == frozenset({"clerk"})
