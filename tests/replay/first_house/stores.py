"""The content of a server of turn logs as JSON, and back into an empty server."""

import base64
from typing import Any

from azure.storage.blob import BlobServiceClient
from redis import Redis


def dump(kind: str, env: dict[str, str]) -> Any:
    """Read all that a server holds.

    Args:
        kind: ``redis`` or ``blob``.
        env: by which a host finds it.

    Returns:
        For Redis, entries of streams (as ``XRANGE`` gives them), hashes and strings by their key; for blobs, by
        container and name, the bytes and the metadata of each append blob.
    """
    return _dump_redis(env) if kind == "redis" else _dump_blobs(env)


def restore(kind: str, env: dict[str, str], stored: Any) -> None:
    """Write what `dump` has read into an empty server; keys of Redis get no expiry."""
    if kind == "redis":
        _restore_redis(env, stored)
    else:
        _restore_blobs(env, stored)


def _redis(env: dict[str, str]) -> Redis:
    return Redis.from_url(env["DURABLE_AGENT_HOST_TURN_LOG"])


def _dump_redis(env: dict[str, str]) -> dict[str, Any]:
    stored: dict[str, Any] = {"streams": {}, "hashes": {}, "strings": {}}
    with _redis(env) as client:
        for key in sorted(client.keys()):
            name = key.decode()
            match client.type(key):
                case b"stream":
                    entries = client.xrange(key)
                    stored["streams"][name] = [[entry.decode(), _texts(fields)] for entry, fields in entries]
                case b"hash":
                    stored["hashes"][name] = _texts(client.hgetall(key))
                case _:
                    stored["strings"][name] = _text(client.get(key))
    return stored


def _restore_redis(env: dict[str, str], stored: dict[str, Any]) -> None:
    with _redis(env) as client:
        for name, entries in stored["streams"].items():
            for entry, fields in entries:
                client.xadd(name, _bytes(fields), id=entry)
        for name, fields in stored["hashes"].items():
            client.hset(name, mapping=_bytes(fields))
        for name, value in stored["strings"].items():
            client.set(name, base64.b64decode(value))


def _dump_blobs(env: dict[str, str]) -> dict[str, Any]:
    with BlobServiceClient.from_connection_string(env["AzureWebJobsStorage"]) as service:
        stored: dict[str, Any] = {}
        for container in service.list_containers():
            client = service.get_container_client(container.name)
            stored[container.name] = {
                blob.name: {
                    "type": str(blob.blob_type.value),
                    "metadata": blob.metadata,
                    "bytes": _text(client.download_blob(blob.name).readall()),
                }
                for blob in client.list_blobs(include=["metadata"])
            }
        return stored


def _restore_blobs(env: dict[str, str], stored: dict[str, Any]) -> None:
    with BlobServiceClient.from_connection_string(env["AzureWebJobsStorage"]) as service:
        for name, blobs in stored.items():
            container = service.create_container(name)
            for blob_name, blob in blobs.items():
                client, data = container.get_blob_client(blob_name), base64.b64decode(blob["bytes"])
                if blob["type"] != "AppendBlob":
                    client.upload_blob(data, metadata=blob["metadata"])
                    continue
                client.create_append_blob(metadata=blob["metadata"])
                if data:
                    client.append_block(data)


def _text(data: Any) -> str:
    return base64.b64encode(data).decode()


def _texts(fields: dict[bytes, bytes]) -> list[list[str]]:
    return [[_text(name), _text(value)] for name, value in fields.items()]


def _bytes(fields: list[list[str]]) -> dict[bytes, bytes]:
    return {base64.b64decode(name): base64.b64decode(value) for name, value in fields}
