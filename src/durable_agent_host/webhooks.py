"""Sends notifications to a URL, signed by the rules of Standard Webhooks.

Source: version 1.0.0 of the specification, https://github.com/standard-webhooks/standard-webhooks.
"""

import base64
import hmac
import json
import socket
import time
from dataclasses import asdict
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from durable_agent_host.errors import NotificationError, SettingError
from durable_agent_host.hook_validation import check_hook
from durable_agent_host.model.notification import Notification, Notify
from durable_agent_host.settings import ANY_ADDRESS, PREFIX, Settings

TIMEOUT_SECONDS: Final = 20.0
"""How long a receiver may take to answer."""

_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what every secret begins with
_SECRET_SETTING: Final = f"{PREFIX}NOTIFY_SECRET"
_MIN_SECRET_BYTES: Final = 24
_NOT_PUBLIC: Final = (
    f"which is not a public address: correct the URL, or set {PREFIX}NOTIFY_ADDRESSES to '{ANY_ADDRESS}'"
)


def make_notify(notify: Notify | str | None, settings: Settings) -> Notify | None:
    """Return the function that delivers notifications, for what the app gives as ``notify``.

    Raises:
        RegistrationError: it cannot be called with a notification.
        SettingError: it is not a usable URL, or the secret for the URL is missing or invalid.
    """
    if isinstance(notify, str):
        allows_any_address = settings.notify_addresses == ANY_ADDRESS
        return Webhook(notify, parse_secrets(settings.notify_secret), allows_any_address=allows_any_address).send
    check_hook("notify", notify, "notification")
    return notify


def parse_secrets(text: str) -> list[bytes]:
    """Parse the signing secrets: ``whsec_`` and base64, several separated by commas.

    Raises:
        SettingError: there is none, or one is malformed or short.
    """
    secrets: list[bytes] = []
    for secret in filter(None, map(str.strip, text.split(","))):
        try:
            key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
        except ValueError:
            key = b""
        if not secret.startswith(_SECRET_PREFIX) or len(key) < _MIN_SECRET_BYTES:
            raise SettingError(
                f"{_SECRET_SETTING} has a secret that is not '{_SECRET_PREFIX}' and the base64 of at least "
                f"{_MIN_SECRET_BYTES} bytes: correct it"
            )
        secrets.append(key)
    if not secrets:
        raise SettingError(f"notify is a URL, and {_SECRET_SETTING} is not set: set it to the secret of its receiver")
    return secrets


def sign(secret: bytes, key: str, timestamp: str, body: str) -> str:
    """Return the signature of a request, as ``webhook-signature`` has it."""
    digest = hmac.digest(secret, f"{key}.{timestamp}.{body}".encode(), "sha256")
    return f"v1,{base64.b64encode(digest).decode()}"


def encode_notification(notification: Notification) -> str:
    """Encode a notification as the body of a request: ``{type, timestamp, data}``."""
    data = {name: value for name, value in asdict(notification).items() if value}
    del data["key"]
    return json.dumps({"type": data.pop("type"), "timestamp": data.pop("timestamp"), "data": data})


def _is_private_address(host: str) -> bool:
    """Return whether a host is an address that is not public; a name is no address."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return False


class Webhook:
    """Posts notifications to a URL.

    Args:
        url: of the receiver.
        secrets: each signs, so that a receiver may have any of them.
        allows_any_address: whether the URL may lead to an address that is not public.

    Raises:
        SettingError: the URL is not one of HTTP, has a password, or has an address that is refused.
    """

    def __init__(self, url: str, secrets: list[bytes], *, allows_any_address: bool) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
            raise SettingError("notify is a text, and not a URL of the form https://HOST/PATH: correct it")
        if not allows_any_address and _is_private_address(parts.hostname):
            raise SettingError(f"notify leads to {parts.hostname}, {_NOT_PUBLIC}")
        self._url = url
        self._host = parts.hostname
        self._secrets = secrets
        self._allows_any_address = allows_any_address

    async def send(self, notification: Notification) -> None:
        """Send a notification.

        Raises:
            NotificationError: the receiver did not take it.
        """
        body = encode_notification(notification)
        timestamp = str(int(time.time()))
        signatures = [sign(secret, notification.key, timestamp, body) for secret in self._secrets]
        headers = {
            "content-type": "application/json",
            "webhook-id": notification.key,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(signatures),
        }
        blocked_addresses: list[str] = []

        def open_socket(address_info: Any) -> socket.socket:
            """Open the socket of one connection, unless the address that it is for is refused.

            The name is not resolved again after this check.
            """
            family, kind, protocol, _, address = address_info
            if not self._allows_any_address and _is_private_address(address[0]):
                blocked_addresses.append(address[0])
                raise OSError(f"{address[0]} is not a public address")
            return socket.socket(family, kind, protocol)

        connector = aiohttp.TCPConnector(socket_factory=open_socket)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
                http.post(self._url, data=body.encode(), headers=headers, allow_redirects=False) as response,
            ):
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            if blocked_addresses:
                raise NotificationError(
                    f"{self._host} leads to {blocked_addresses[0]}, {_NOT_PUBLIC}", retryable=False
                ) from error
            raise NotificationError(f"{self._host} did not answer: {error or type(error).__name__}") from error
        if not 200 <= status < 300:  # noqa: PLR2004 - success
            raise NotificationError(f"{self._host} answered {status}", retryable=status != HTTPStatus.GONE)
