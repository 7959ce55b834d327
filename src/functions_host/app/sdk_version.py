"""Checks the version of the durable SDK: this host supports 1.x."""

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from functions_host.app.function import AppFunction
from functions_host.errors import StartupError

_PACKAGE = "azure-functions-durable"


def newer_durable_sdk() -> str | None:
    """Return the version of an installed SDK that this host does not support, else None.

    In version 2, orchestrators, entities and clients use gRPC.
    """
    try:
        installed_version = version(_PACKAGE)
    except PackageNotFoundError:
        return None
    major = installed_version.partition(".")[0]
    return installed_version if major.isdecimal() and int(major) > 1 else None


def check_durable_sdk_version(functions: Iterable[AppFunction] | None = None) -> None:
    """Refuse an app that uses an unsupported SDK.

    Raises:
        StartupError: the SDK is unsupported; the message names the version to install.
    """
    installed_version = newer_durable_sdk()
    if installed_version is None:
        return
    if functions is None:
        is_used = "azure.durable_functions" in sys.modules
    else:
        is_used = any(function.durable_name is not None or function.clients for function in functions)
    if is_used:
        raise StartupError(
            f"{_PACKAGE} {installed_version} is installed, and this host runs apps of version 1: "
            f"run pip install '{_PACKAGE}<2', and pin it in requirements.txt."
        )
