"""Sends notifications to a URL, signed by the rules of Standard Webhooks."""

import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import aiohttp
from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from durable_agent_host.app_functions import check_hook
from durable_agent_host.errors import NotificationError, SettingError
from durable_agent_host.features.notifications.notification import Notification, Notify
from durable_agent_host.redaction import add_known_secrets
from durable_agent_host.settings import PREFIX, Settings

TIMEOUT_SECONDS: Final = 10.0
"""How long a receiver may take to answer."""


def make_notify(notify: Notify | str | None, settings: Settings) -> Notify | None:
    """Return the function that delivers notifications, for what the app gives as ``notify``.

    Raises:
        RegistrationError: it cannot be called with a notification.
        SettingError: it is not a usable URL, or the secret for the URL is missing or invalid.
    """
    if not isinstance(notify, str):
        check_hook("notify", notify, "notification")
        return notify
    parts = urlsplit(notify)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise SettingError("notify is a text, and not a URL of the form https://HOST/PATH: correct it")
    try:
        webhooks = [Webhook(secret.strip()) for secret in settings.notify_secret.split(",")]
    except (EmptyWebhookSecretError, ValueError) as error:
        raise SettingError(
            f"notify is a URL, and {PREFIX}NOTIFY_SECRET is not the secret of its receiver, 'whsec_' and base64: set it"
        ) from error
    add_known_secrets([notify.partition("://")[2], *(value for _, value in parse_qsl(parts.query))])
    return partial(_send, notify, webhooks)


def _send(url: str, webhooks: list[Webhook], notification: Notification) -> None:
    """Send a notification from a loop of its own, whose thread also waits for the name's addresses."""
    asyncio.run(_post(url, webhooks, notification))


async def _post(url: str, webhooks: list[Webhook], notification: Notification) -> None:
    """Send a notification, signed with each secret, so that a receiver may have any of them.

    Raises:
        NotificationError: the receiver did not take it. The message has no more of the URL than its host.
    """
    data = {name: value for name, value in asdict(notification).items() if value}
    del data["key"]
    body = json.dumps({"type": data.pop("type"), "timestamp": data.pop("timestamp"), "data": data})
    now = datetime.now(UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": notification.key,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(webhook.sign(notification.key, now, body) for webhook in webhooks),
    }
    host = urlsplit(url).hostname
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as http,
            http.post(url, data=body.encode(), headers=headers, allow_redirects=False) as response,
        ):
            status = response.status
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NotificationError(f"{host} did not answer: {type(error).__name__}") from None
    if not 200 <= status < 300:  # noqa: PLR2004 - success
        raise NotificationError(f"{host} answered {status}", retryable=status != HTTPStatus.GONE)
