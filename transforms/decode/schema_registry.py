"""A schema registry: schemas by their id, and the newest of a subject.

What is asked is the REST interface that Confluent's registry made common (Apicurio, Karapace and
Redpanda have it too). Spark's workers ask it themselves, each process once for each id: an id
stands for the same schema for ever. Only the standard library is needed, so nothing has to be
installed where they run.
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
from typing import IO
from urllib.parse import quote, urlsplit

from lakemark.errors import HudiError, InvalidConfig, Permanent, Retriable
from transforms.decode.avro_references import Reference, StoredSchema

_LOG = logging.getLogger(__name__)

_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
_ANSWER_WITHIN_S = 10.0
_LONGEST_ANSWER_BYTES = 16 << 20
_LONGEST_REFERENCE_CHAIN = 100

_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429
_SERVER_ERRORS = 500
#: What a registry itself says where it has no such subject, version or schema.
_NO_SUCH = (40401, 40402, 40403)

_MISSING_FOR_S = 30.0
_MOST_MISSING = 1000


class RegistryError(HudiError):
    """The schema registry cannot deliver."""


class RegistryUnavailable(RegistryError, Retriable):
    """It did not answer in time, however often it was asked."""


class RegistryRefused(RegistryError, Permanent):
    """It does not let this client read, or is no schema registry."""


class ReadForbidden(RegistryRefused):
    """This client may not read what it asked for; it may be allowed to read something else."""


class SchemaNotFound(RegistryError, Permanent):
    """It does not have what was asked for."""


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    """What a registry asks of its clients; printing it shows nothing of them.

    Attributes:
        user: for basic authentication, with ``password``.
        password: of the user.
        token: for bearer authentication.
        ca_file: certificates to trust, PEM; None takes the system's.
        certificate_file: the client's own, PEM.
        key_file: its private key, PEM; None where the certificate's file has it.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def headers(self) -> dict[str, str]:
        """What each request says of its sender."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is not None:
            pair = f"{self.user}:{self.password or ''}".encode()
            return {"Authorization": f"Basic {b64encode(pair).decode()}"}
        return {}

    def tls(self) -> ssl.SSLContext:
        """How connections are secured.

        Raises:
            InvalidConfig: a file that is not there, or holds no certificate or key.
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


_OPEN = RegistryCredentials()


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Asks one registry; holds only its configuration, so it pickles, secrets included.

    Attributes:
        url: where it answers, ``http`` or ``https``.
        access: what it asks of its clients.
        retry_timeout_s: how long one that does not answer is asked again.
    """

    url: str
    access: RegistryCredentials = _OPEN
    retry_timeout_s: float = 30.0

    def schema(self, schema_id: int) -> StoredSchema:
        """The schema of an id, and those that it refers to.

        Raises:
            SchemaNotFound: there is none of that id.
            RegistryUnavailable, RegistryRefused: nobody can tell.
        """
        return self._stored(self._ask(f"schemas/ids/{schema_id}"), f"schema {schema_id}", 0)

    def newest(self, subject: str) -> StoredSchema:
        """The newest schema of a subject; errors as for ``schema``."""
        return self._version(subject, "latest", 0)

    def check(self, subject: str) -> None:
        """Pass when the registry answers this client, whether or not it has the subject.

        Args:
            subject: is asked for. An account may be allowed to read schemas by their id alone.

        Raises:
            RegistryUnavailable, RegistryRefused: as ``schema``.
        """
        with suppress(SchemaNotFound, ReadForbidden):
            self.newest(subject)

    def _version(self, subject: str, version: str, depth: int) -> StoredSchema:
        answer = self._ask(f"subjects/{quote(subject, safe='')}/versions/{quote(version)}")
        return self._stored(answer, f"subject {subject}, version {version}", depth)

    def _stored(self, answer: Mapping[str, object], what: str, depth: int) -> StoredSchema:
        kind, text = answer.get("schemaType", "AVRO"), answer.get("schema")
        if kind != "AVRO" or not isinstance(text, str):
            message = f"{what} of the schema registry at {self.url} is of type {kind}, not AVRO"
            raise SchemaNotFound(message)
        if depth > _LONGEST_REFERENCE_CHAIN:
            message = f"{what} of the schema registry at {self.url} refers to itself"
            raise SchemaNotFound(message)
        listed = answer.get("references") or []
        references = [] if not isinstance(listed, list) else listed
        return StoredSchema(text, tuple(self._references(references, depth + 1)))

    def _references(self, listed: list[object], depth: int) -> Iterator[Reference]:
        for said in listed:
            if not isinstance(said, dict) or not {"name", "subject", "version"} <= set(said):
                raise self._no_registry()
            stored = self._version(str(said["subject"]), str(said["version"]), depth)
            yield Reference(str(said["name"]), stored)

    def _ask(self, path: str) -> Mapping[str, object]:
        """The answer to a question, asked again while nobody answers."""
        deadline = time.monotonic() + self.retry_timeout_s
        wait_s = 0.1
        while True:
            try:
                return self._ask_once(path)
            except RegistryUnavailable as unavailable:
                if time.monotonic() + wait_s > deadline:
                    raise
                _LOG.warning("%s; requesting again in %.1f s", unavailable, wait_s)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 5.0)

    def _ask_once(self, path: str) -> Mapping[str, object]:
        headers = {"Accept": _ACCEPTED, **self.access.headers()}
        request = urllib.request.Request(f"{self.url.rstrip('/')}/{path}", headers=headers)
        try:
            with self._opener().open(request, timeout=_ANSWER_WITHIN_S) as answer:
                body = answer.read(_LONGEST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            raise self._refusal(error, path) from None
        except (OSError, HTTPException) as error:
            raise self._silence(error) from None
        return self._parsed(body)

    def _opener(self) -> urllib.request.OpenerDirector:
        tls = self.access.tls() if self.url.startswith("https") else None
        return urllib.request.build_opener(
            _RedirectsToItself, urllib.request.HTTPSHandler(context=tls)
        )

    def _parsed(self, body: bytes) -> Mapping[str, object]:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise self._no_registry() from None
        if not isinstance(answer, dict):
            raise self._no_registry()
        return answer

    def _silence(self, error: OSError | HTTPException) -> RegistryError:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            message = (
                f"the certificate of the schema registry at {self.url} is not trusted: "
                f"{reason.verify_message}; name its authority in decode.schema_registry.ca_file"
            )
            return RegistryRefused(message)
        message = (
            f"the schema registry at {self.url} does not answer ({reason}); check "
            "decode.schema_registry.url and the network"
        )
        return RegistryUnavailable(message)

    def _refusal(self, error: urllib.error.HTTPError, path: str) -> RegistryError:
        status = error.code
        if status == _NOT_FOUND and _error_code(error) in _NO_SUCH:
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

    def _no_registry(self) -> RegistryRefused:
        message = f"what answers at {self.url} is no schema registry; check the url"
        return RegistryRefused(message)


class _RedirectsToItself(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to another server: the credentials would go along."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request to make instead; None for none."""
        if urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _error_code(error: urllib.error.HTTPError) -> object:
    """What a registry says besides the status; None for what is no registry's answer."""
    try:
        answer = json.loads(error.read(_LONGEST_ANSWER_BYTES))
    except (ValueError, RecursionError, OSError, HTTPException):
        return None
    return answer.get("error_code") if isinstance(answer, dict) else None


class SchemaCache:
    """What a process knows of one registry; may be asked from any thread.

    What is there is asked for once: an id stands for the same schema for ever. What is not there
    may be registered any moment, so it is asked for again, but only after 30 seconds, and no more
    ids than 1000 are asked for in vain in that time: bytes that are no Avro may look like any
    number of ids.

    Args:
        registry: is asked.
        clock: seconds that never go back.
    """

    def __init__(
        self, registry: SchemaRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry, self._clock = registry, clock
        self._lock = threading.Lock()
        self._found: dict[int, StoredSchema] = {}
        self._missing: dict[int, tuple[float, str]] = {}

    def schema(self, schema_id: int) -> StoredSchema:
        """The schema of an id; errors as for ``SchemaRegistry.schema``."""
        found = self._found.get(schema_id)
        if found is not None:
            return found
        self._check_missing(schema_id)
        try:
            found = self._registry.schema(schema_id)
        except SchemaNotFound as missing:
            with self._lock:
                self._missing[schema_id] = self._clock() + _MISSING_FOR_S, str(missing)
            raise
        self._found[schema_id] = found
        return found

    def _check_missing(self, schema_id: int) -> None:
        """Raise ``SchemaNotFound`` where nobody is to be asked now."""
        with self._lock:
            while self._missing and next(iter(self._missing.values()))[0] <= self._clock():
                del self._missing[next(iter(self._missing))]
            _, reason = self._missing.get(schema_id, (0.0, None))
            if reason is None and len(self._missing) >= _MOST_MISSING:
                reason = (
                    f"the schema registry at {self._registry.url} was not asked for it, as it had "
                    f"none of {_MOST_MISSING} other ids just before"
                )
        if reason is not None:
            raise SchemaNotFound(reason)


@lru_cache(maxsize=64)
def schema_cache(registry: SchemaRegistry) -> SchemaCache:
    """What this process knows of a registry."""
    return SchemaCache(registry)
