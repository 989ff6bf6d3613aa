"""A client of schema registries. It reads schemas by id, and the latest schema of a subject.

The client uses the REST interface of Confluent's registry, which Apicurio, Karapace and Redpanda
also provide. The schema of an id never changes, so each worker process of Spark requests each id
only once. The client needs only the standard library, so workers need no other packages.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException, HTTPMessage
from typing import IO, Literal
from urllib.parse import quote, urlsplit

from lakemark.errors import HudiError, InvalidConfig, Permanent, Retriable
from transforms.decode.stored_schema import Reference, StoredSchema

_LOG = logging.getLogger(__name__)

#: The kinds of schemas, as registries name them.
SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]

_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 16 << 20
_MAX_REFERENCE_DEPTH = 100

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429
_SERVER_ERRORS = 500
#: Error codes that mean that the registry does not have the subject, the version or the schema.
_NOT_FOUND_CODES = (40401, 40402, 40403)

_RETRY_MISSING_S = 30.0
_MAX_MISSING_IDS = 1000


class RegistryError(HudiError):
    """The schema registry did not provide a schema."""


class RegistryUnavailable(RegistryError, Retriable):
    """The registry did not answer before the retry timeout."""


class RegistryRefused(RegistryError, Permanent):
    """The registry refused this client, or the server is not a schema registry."""


class ReadForbidden(RegistryRefused):
    """This client may not read the requested schema. It may be allowed to read other schemas."""


class SchemaNotFound(RegistryError, Permanent):
    """The registry does not have the requested schema."""


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """Credentials and certificates for a registry. ``repr`` hides the secrets.

    Attributes:
        user: the user for basic authentication, with ``password``.
        password: the password of the user.
        token: the token for bearer authentication.
        ca_file: a PEM file with the authorities to trust; None means those of the system.
        certificate_file: a PEM file with the client's certificate.
        key_file: a PEM file with the client's private key; None if ``certificate_file`` contains
            it.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            pair = f"{self.user}:{self.password or ''}".encode()
            return {"Authorization": f"Basic {b64encode(pair).decode()}"}
        return {}

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context for connections.

        Raises:
            InvalidConfig: a file does not exist, or contains no certificate or key.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = (self.ca_file, self.certificate_file, self.key_file)
            named = ", ".join(name for name in files if name is not None)
            message = f"decode.schema_registry: {named} cannot be used for TLS: {error.strerror}"
            raise InvalidConfig(message) from error
        return context


_NO_CREDENTIALS = RegistryCredentials()


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A client of one registry. It contains only configuration, including secrets. Can be pickled.

    Attributes:
        url: the address of the registry, ``http`` or ``https``.
        credentials: the credentials and certificates.
        retry_timeout_s: for how many seconds requests are retried if the registry does not answer.
        kind: the kind of the schemas; a schema of another kind counts as one that does not exist.
    """

    url: str
    credentials: RegistryCredentials = _NO_CREDENTIALS
    retry_timeout_s: float = 30.0
    kind: SchemaKind = "AVRO"

    def schema(self, schema_id: int) -> StoredSchema:
        """Read the schema of an id, and the schemas that it refers to.

        Raises:
            SchemaNotFound: the registry does not have the id.
            RegistryUnavailable, RegistryRefused: the registry cannot be read.
        """
        answer = self._request(f"schemas/ids/{schema_id}")
        return _Reading(self).stored(answer, f"schema {schema_id}", 0)

    def latest(self, subject: str) -> StoredSchema:
        """Read the latest schema of a subject. Raises the same errors as ``schema``."""
        return _Reading(self).version(subject, "latest", 0)

    def check(self, subject: str) -> None:
        """Check that the registry answers this client, even if it does not have the subject.

        Args:
            subject: the subject to request. Access to it may be forbidden, because some accounts
                may only read schemas by id.

        Raises:
            RegistryUnavailable, RegistryRefused: as for ``schema``.
        """
        with suppress(SchemaNotFound, ReadForbidden):
            self.latest(subject)

    def _request(self, path: str) -> Mapping[str, object]:
        """Send a request; retry while the registry does not answer, until the retry timeout."""
        deadline = time.monotonic() + self.retry_timeout_s
        wait_s = 0.1
        while True:
            try:
                return self._request_once(path)
            except RegistryUnavailable as unavailable:
                if time.monotonic() + wait_s > deadline:
                    raise
                _LOG.warning("%s; retrying in %.1f s", unavailable, wait_s)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 5.0)

    def _request_once(self, path: str) -> Mapping[str, object]:
        headers = {"Accept": _ACCEPTED, **self.credentials.headers()}
        request = urllib.request.Request(f"{self.url.rstrip('/')}/{path}", headers=headers)
        try:
            with self._opener().open(request, timeout=_TIMEOUT_S) as answer:
                body = answer.read(_MAX_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            raise self._status_error(error, path) from None
        except (OSError, HTTPException) as error:
            raise self._connection_error(error) from None
        return self._parsed(body)

    def _opener(self) -> urllib.request.OpenerDirector:
        tls = self.credentials.tls() if self.url.startswith("https") else None
        return urllib.request.build_opener(
            _SameServerRedirects, urllib.request.HTTPSHandler(context=tls)
        )

    def _parsed(self, body: bytes) -> Mapping[str, object]:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise self._not_a_registry() from None
        if not isinstance(answer, dict):
            raise self._not_a_registry()
        return answer

    def _connection_error(self, error: OSError | HTTPException) -> RegistryError:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            message = (
                f"the certificate of the schema registry at {self.url} is not trusted: "
                f"{reason.verify_message}; name its authority in "
                "decode.schema_registry.access.ca_file"
            )
            return RegistryRefused(message)
        message = (
            f"the schema registry at {self.url} does not answer ({reason}); check "
            "decode.schema_registry.url and the network"
        )
        return RegistryUnavailable(message)

    def _status_error(self, error: urllib.error.HTTPError, path: str) -> RegistryError:
        status = error.code
        if status == _NOT_FOUND and _error_code(error) in _NOT_FOUND_CODES:
            message = f"the schema registry at {self.url} has no {path}"
            return SchemaNotFound(message)
        if status >= _SERVER_ERRORS or status == _TOO_MANY:
            message = f"the schema registry at {self.url} answers with status {status}"
            return RegistryUnavailable(message)
        hint = "decode.schema_registry.url"
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            hint = "the credentials in decode.schema_registry"
        message = f"the schema registry at {self.url} answers with status {status}; check {hint}"
        return ReadForbidden(message) if status == _FORBIDDEN else RegistryRefused(message)

    def _not_a_registry(self) -> RegistryRefused:
        message = (
            f"the server at {self.url} is not a schema registry; check decode.schema_registry.url"
        )
        return RegistryRefused(message)


class _Reading:
    """Reads one schema. A version to which several schemas refer is requested only once."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._versions: dict[tuple[str, str], StoredSchema] = {}

    def version(self, subject: str, version: str, depth: int) -> StoredSchema:
        """Read a version of a subject; ``depth`` references lead to it."""
        found = self._versions.get((subject, version))
        if found is None:
            path = f"subjects/{quote(subject, safe='')}/versions/{quote(version)}"
            name = f"subject {subject}, version {version}"
            found = self.stored(self._registry._request(path), name, depth)
            self._versions[subject, version] = found
        return found

    def stored(self, answer: Mapping[str, object], name: str, depth: int) -> StoredSchema:
        """Return the schema of an answer, with the schemas that it refers to."""
        kind, text = answer.get("schemaType", "AVRO"), answer.get("schema")
        name = f"{name} of the schema registry at {self._registry.url}"
        if kind != self._registry.kind or not isinstance(text, str):
            message = f"{name} is of type {kind}, not {self._registry.kind}"
            raise SchemaNotFound(message)
        if depth > _MAX_REFERENCE_DEPTH:
            message = f"{name} refers to itself"
            raise SchemaNotFound(message)
        listed = answer.get("references") or []
        references = [] if not isinstance(listed, list) else listed
        return StoredSchema(text, tuple(self._references(references, depth + 1)))

    def _references(self, listed: list[object], depth: int) -> Iterator[Reference]:
        for reference in listed:
            if not isinstance(reference, dict) or not {"name", "subject", "version"} <= set(
                reference
            ):
                raise self._registry._not_a_registry()
            stored = self.version(str(reference["subject"]), str(reference["version"]), depth)
            yield Reference(str(reference["name"]), stored)


class _SameServerRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects to another server, because that server would receive the credentials."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the request to send instead; None to refuse the redirect."""
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _error_code(error: urllib.error.HTTPError) -> object:
    """Return the error code in a registry's answer; None if there is none."""
    try:
        answer = json.loads(error.read(_MAX_ANSWER_BYTES))
    except (ValueError, RecursionError, OSError, HTTPException):
        return None
    return answer.get("error_code") if isinstance(answer, dict) else None


class SchemaCache:
    """Caches the schemas of one registry in a process. Thread-safe.

    A schema is requested only once, because the schema of an id never changes. A missing id may be
    registered later, so it is requested again after 30 seconds. While 1000 ids are missing, no
    further ids are requested, because bytes in another format may contain any number of ids.

    Args:
        registry: the registry.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, registry: SchemaRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry, self._clock = registry, clock
        self._lock = threading.Lock()
        self._found: dict[int, StoredSchema] = {}
        self._missing: dict[int, tuple[float, str]] = {}

    def schema(self, schema_id: int) -> StoredSchema:
        """Return the schema of an id. Raises the same errors as ``SchemaRegistry.schema``."""
        found = self._found.get(schema_id)
        if found is not None:
            return found
        self._check_missing(schema_id)
        try:
            found = self._registry.schema(schema_id)
        except SchemaNotFound as missing:
            with self._lock:
                self._missing[schema_id] = self._clock() + _RETRY_MISSING_S, str(missing)
            raise
        self._found[schema_id] = found
        return found

    def _check_missing(self, schema_id: int) -> None:
        """Check that the registry may be asked for an id.

        Raises:
            SchemaNotFound: the id was missing less than 30 seconds ago; or too many other ids were
                missing in this time.
        """
        with self._lock:
            while self._missing and next(iter(self._missing.values()))[0] <= self._clock():
                del self._missing[next(iter(self._missing))]
            _, reason = self._missing.get(schema_id, (0.0, None))
            if reason is None and len(self._missing) >= _MAX_MISSING_IDS:
                reason = (
                    f"the schema registry at {self._registry.url} was not asked for this id, "
                    f"because it had none of {_MAX_MISSING_IDS} other ids within "
                    f"{_RETRY_MISSING_S:.0f} s"
                )
        if reason is not None:
            raise SchemaNotFound(reason)


@lru_cache(maxsize=64)
def get_schema_cache(registry: SchemaRegistry) -> SchemaCache:
    """Return this process's cache of a registry."""
    return SchemaCache(registry)
