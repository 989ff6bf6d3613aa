"""Converts errors of an object store to errors of the storage protocol, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from obstore import exceptions

from lakemark.errors import HudiError, InvalidConfig, StorageUnavailable, Unsupported
from lakemark.storage.storage import AlreadyExists, InvalidPath, NotFound, PreconditionFailed

_MOST_CHARACTERS = 300
_SECRET_KEY = re.compile(r"key|secret|token|password|credential|sas|signature", re.IGNORECASE)
_QUERY = re.compile(r"(https?://[^\s?]*)\?[^\s,)]+")
#: A user and a password, or a token, before the host in the URL of a proxy or an endpoint.
_USER_INFO = re.compile(r"(https?://)(?:[^\s:/]*:\S*|[^\s:/]+)@")
_REJECTED = re.compile(r"status code: (4\d\d)")

# Request timeout, conflict, locked, too many requests. After these, a retry may succeed.
_BUSY = frozenset({"408", "409", "423", "429"})

# If no credentials are configured, the client requests credentials from these cloud services.
_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")


class StoreErrors:
    """Converts errors of one store's client."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url
        self._secrets = [v for k, v in options.items() if v and _SECRET_KEY.search(k)]

    @contextmanager
    def typed(self, path: str) -> Iterator[None]:
        """Convert the client's errors in a block to errors about ``path``.

        The errors are not chained, because the client's errors may contain secrets.
        """
        try:
            yield
        except (exceptions.BaseError, OSError, NotImplementedError, ValueError) as error:
            if isinstance(error, HudiError):  # InvalidPath is a ValueError
                raise
            raise self._of(error, path) from None

    def _of(self, error: Exception, path: str) -> HudiError:
        reason = self._reason(error)
        url = f"{self._url.rstrip('/')}/{path}"
        kind, remedy = _classify(error, reason)
        return kind(f"{url}: {reason}{remedy}")

    def _reason(self, error: Exception) -> str:
        text = str(error).split("\n\nDebug source", 1)[0]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _USER_INFO.sub(r"\1***@", text)
        text = " ".join(_QUERY.sub(r"\1", text).split())
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _classify(error: Exception, reason: str) -> tuple[type[HudiError], str]:
    """Return the kind of error, and the remedy to add to the store's message."""
    if "NoSuchBucket" in reason or "ContainerNotFound" in reason:
        return InvalidConfig, "; create the bucket, or correct its name"
    for of_client, ours in _KINDS:
        if isinstance(error, of_client):
            return ours
    if any(service in reason for service in _METADATA_SERVICES):
        return InvalidConfig, "; no credentials were found: set them among the storage options"
    rejected = _REJECTED.search(reason)
    if rejected and rejected.group(1) not in _BUSY:
        return InvalidConfig, "; the store rejects the request: check its options"
    return StorageUnavailable, ""


_KINDS: tuple[tuple[type[Exception], tuple[type[HudiError], str]], ...] = (
    (FileNotFoundError, (NotFound, "")),
    (exceptions.AlreadyExistsError, (AlreadyExists, "")),
    (exceptions.PreconditionError, (PreconditionFailed, "")),
    (exceptions.PermissionDeniedError, (InvalidConfig, "; allow these credentials to do this")),
    (exceptions.UnauthenticatedError, (InvalidConfig, "; check the credentials")),
    (exceptions.UnknownConfigurationKeyError, (InvalidConfig, "; correct the storage options")),
    (exceptions.InvalidPathError, (InvalidPath, "")),
    (ValueError, (InvalidPath, "")),
    (exceptions.NotSupportedError, (Unsupported, "; use another store")),
    (NotImplementedError, (Unsupported, "; use another store")),
)
