"""Converts errors of an object store to errors of the storage protocol, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from obstore import exceptions

from lakemark.errors import HudiError, InvalidConfig, StorageUnavailable, Unsupported
from lakemark.storage.storage import (
    AccessDenied,
    AlreadyExists,
    InvalidPath,
    NotFound,
    PreconditionFailed,
)

_MOST_CHARACTERS = 300
_SECRET_KEY = re.compile(r"key|secret|token|password|credential|sas|signature", re.IGNORECASE)
_QUERY = re.compile(r"(https?://[^\s?]*)\?[^\s,)]+")
#: A user and a password, or a token, before the host in the URL of a proxy or an endpoint.
_USER_INFO = re.compile(r"(https?://)(?:[^\s:/]*:\S*|[^\s:/]+)@")
_REJECTED = re.compile(r"status code: (4\d\d)")

# Request timeout, conflict, locked, too many requests. After these, a retry may succeed.
_BUSY = frozenset({"408", "409", "423", "429"})

# How S3 refuses a listing, and one object of a request to delete several. The client reports both
# as errors without a class.
_DENIED = re.compile(r"status code: 403|code: AccessDenied")

# Codes of S3 for credentials that it does not know, which it answers with status 403, too.
_UNKNOWN_CREDENTIALS = re.compile(
    "InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
)

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
        shown = reason if len(reason) <= _MOST_CHARACTERS else f"{reason[:_MOST_CHARACTERS]}…"
        return kind(f"{url}: {shown}{remedy}")

    def _reason(self, error: Exception) -> str:
        text = str(error).split("\n\nDebug source", 1)[0]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _USER_INFO.sub(r"\1***@", text)
        return " ".join(_QUERY.sub(r"\1", text).split())


def _classify(error: Exception, reason: str) -> tuple[type[HudiError], str]:
    """Return the kind of error, and the remedy to add to the store's message."""
    if "NoSuchBucket" in reason or "ContainerNotFound" in reason:
        return InvalidConfig, "; create the bucket, or correct its name"
    if _UNKNOWN_CREDENTIALS.search(reason):
        return _WRONG_CREDENTIALS
    for of_client, ours in _KINDS:
        if isinstance(error, of_client):
            return ours
    if any(service in reason for service in _METADATA_SERVICES):
        return InvalidConfig, "; no credentials were found: set them among the storage options"
    if _DENIED.search(reason):
        return _NOT_ALLOWED
    rejected = _REJECTED.search(reason)
    if rejected and rejected.group(1) not in _BUSY:
        return InvalidConfig, "; the store rejects the request: check its options"
    return StorageUnavailable, ""


_NOT_ALLOWED = (AccessDenied, "; allow these credentials to do this")
_WRONG_CREDENTIALS = (InvalidConfig, "; check the credentials")
_KINDS: tuple[tuple[type[Exception], tuple[type[HudiError], str]], ...] = (
    (FileNotFoundError, (NotFound, "")),
    (exceptions.AlreadyExistsError, (AlreadyExists, "")),
    (exceptions.PreconditionError, (PreconditionFailed, "")),
    (exceptions.PermissionDeniedError, _NOT_ALLOWED),
    (exceptions.UnauthenticatedError, _WRONG_CREDENTIALS),
    (exceptions.UnknownConfigurationKeyError, (InvalidConfig, "; correct the storage options")),
    (exceptions.InvalidPathError, (InvalidPath, "")),
    (ValueError, (InvalidPath, "")),
    (exceptions.NotSupportedError, (Unsupported, "; use another store")),
    (NotImplementedError, (Unsupported, "; use another store")),
)
