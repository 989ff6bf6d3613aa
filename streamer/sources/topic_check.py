"""Checks the topic before Spark starts, so that a wrong address is reported at once.

The stream uses Kafka's Java client, which needs a JVM. This check uses librdkafka, which needs no
JVM. The two clients have different security properties, and librdkafka does not support all of
Java's. If a property has no equivalent, the check is skipped, and the first connection is that of
Kafka's Java client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streamer.sources.errors import BrokerRefused, BrokerUnreachable, SourceError, TopicNotFound

#: Seconds within which a broker that accepts connections must answer.
ANSWER_WITHIN_S: Final = 8.0

#: Seconds to wait for a broker that does not accept connections. A restart often takes less.
_CONNECT_WITHIN_S = 3.0

#: Seconds for which a broker may not know a topic that was just created.
_KNOWN_WITHIN_S = 1.0

_POLL_S = 0.05

_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
_REFUSALS = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+"
    r"required\s+(?P<options>.*?)\s*;\s*",
    re.DOTALL,
)
#: Values that Kafka's ``JaasConfig`` reads with Java's ``StreamTokenizer``. Escapes such as ``\n``
#: and ``\101`` mean other characters there, so values with such escapes are not translated.
_JAAS_VALUE = (
    r"""(?:"(?P<double>(?:[^"\\]|\\[^0-7abfnrtv])*)"|'(?P<single>(?:[^'\\]|\\[^0-7abfnrtv])*)'"""
    r"""|(?P<plain>[A-Za-z_$][\w.$-]*))"""
)
_JAAS_OPTION = re.compile(rf"(?P<name>\w+)\s*=\s*{_JAAS_VALUE}\s*")

#: For each type of key or trust store: Java's properties, each with its librdkafka settings.
_StoreTypes: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
_TRUST_STORES: _StoreTypes = {
    "PEM": {
        "ssl.truststore.location": ("ssl.ca.location",),
        "ssl.truststore.certificates": ("ssl.ca.pem",),
    },
}
_KEY_STORES: _StoreTypes = {
    "PEM": {
        "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
        "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
        "ssl.keystore.key": ("ssl.key.pem",),
        "ssl.key.password": ("ssl.key.password",),
    },
    "PKCS12": {
        "ssl.keystore.location": ("ssl.keystore.location",),
        "ssl.keystore.password": ("ssl.keystore.password",),
    },
}


class NotTranslatable(Exception):
    """librdkafka does not support a property of Kafka's Java client."""


def check_topic(bootstrap: str, topic: str, properties: Mapping[str, str]) -> None:
    """Check that a broker answers and has the topic. A missing topic is not created.

    Args:
        bootstrap: the addresses of the brokers, ``host:port,host:port``.
        topic: the name of the topic.
        properties: the properties of Kafka's Java consumer. The security properties are translated.

    Raises:
        NotTranslatable: librdkafka does not support a property, so nothing was checked.
        BrokerUnreachable: no broker answers.
        BrokerRefused: the client is not authenticated or not authorized.
        TopicNotFound: there is no such topic.
    """
    request = _TopicRequest(bootstrap, topic, client_settings(bootstrap, properties))
    known_by = time.monotonic() + _KNOWN_WITHIN_S
    while True:
        try:
            return request.send()
        except TopicNotFound:
            if time.monotonic() > known_by:
                raise
        time.sleep(_POLL_S)


def client_settings(bootstrap: str, properties: Mapping[str, str]) -> dict[str, str | int]:
    """Translate the properties of Kafka's Java client to settings of librdkafka.

    Raises:
        NotTranslatable: librdkafka has no equivalent setting; the message names the property.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    settings: dict[str, str | int] = {
        "bootstrap.servers": re.sub(r"[A-Za-z_]+://", "", bootstrap),
        "security.protocol": protocol,
        "log_level": 0,  # failures are raised, not printed
        "reconnect.backoff.ms": 200,
        "reconnect.backoff.max.ms": 1000,
    }
    if protocol.startswith("SASL"):
        settings.update(_sasl_settings(properties))
    if protocol.endswith("SSL"):
        settings.update(_tls_settings(properties))
    return settings


def _sasl_settings(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _SASL_MECHANISMS:
        message = f"sasl.mechanism {mechanism}"
        raise NotTranslatable(message)
    _refuse_others(properties, "sasl.", ("sasl.mechanism", "sasl.jaas.config"))
    jaas = _JAAS.fullmatch(properties.get("sasl.jaas.config", ""))
    options = {} if jaas is None else dict(_jaas_options(jaas["options"]))
    if options.keys() != {"username", "password"}:
        message = "sasl.jaas.config is not a login module with only username and password"
        raise NotTranslatable(message)
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": options["username"],
        "sasl.password": options["password"],
    }


def _jaas_options(text: str) -> Iterator[tuple[str, str]]:
    """Yield the options by name; if a part is not recognised, yield an option without a name."""
    position = 0
    while (found := _JAAS_OPTION.match(text, position)) is not None:
        quoted = found["double"] if found["single"] is None else found["single"]
        yield found["name"], found["plain"] or re.sub(r"\\(.)", r"\1", quoted)
        position = found.end()
    if position < len(text):
        yield "", ""


def _tls_settings(properties: Mapping[str, str]) -> dict[str, str]:
    trust = _store_settings(properties, "ssl.truststore.type", _TRUST_STORES)
    key = _store_settings(properties, "ssl.keystore.type", _KEY_STORES)
    names = [*_TRUST_STORES.values(), *_KEY_STORES.values()]
    types = "ssl.truststore.type", "ssl.keystore.type", "ssl.endpoint.identification.algorithm"
    known = {*types, *(name for one in names for name in one)}
    _refuse_others(properties, "ssl.", known)
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https")
    return {**trust, **key, "ssl.endpoint.identification.algorithm": algorithm or "none"}


def _store_settings(
    properties: Mapping[str, str],
    type_name: str,
    types: _StoreTypes,
) -> dict[str, str]:
    """Translate the properties of a key or trust store."""
    prefix = type_name.removesuffix("type")
    given = [name for name in properties if name.startswith(prefix) and name != type_name]
    kind = properties.get(type_name, "JKS").upper()
    if given and kind not in types:
        message = f"{prefix}* of type {kind}"
        raise NotTranslatable(message)
    names = types.get(kind, {})
    return {
        theirs: properties[ours]
        for ours, all_theirs in names.items()
        for theirs in all_theirs
        if ours in properties
    }


def _refuse_others(
    properties: Mapping[str, str], prefix: str, known: set[str] | tuple[str, ...]
) -> None:
    others = sorted(name for name in properties if name.startswith(prefix) and name not in known)
    if others:
        message = ", ".join(others)
        raise NotTranslatable(message)


class _TopicRequest:
    """A connection that requests the description of one topic."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, str | int]) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._trusts_by_default = not {"ssl.ca.location", "ssl.ca.pem"} & settings.keys()
        self._errors: list[KafkaError] = []
        given: dict[str, Any] = {**settings, "error_cb": self._errors.append}
        try:
            self._admin = AdminClient(given)
        except (KafkaException, ValueError) as error:
            raise NotTranslatable(str(error)) from None

    def send(self) -> None:
        """Check that the broker has the topic; raise the errors of ``check_topic``."""
        # A metadata request may create a topic; this request does not.
        futures = self._admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=ANSWER_WITHIN_S
        )
        answer: Future[object] = futures[self._topic]
        self._await(answer)
        try:
            answer.result(0)
        except KafkaException as error:
            raise self._failure(error.args[0]) from None

    def _await(self, answer: Future[object]) -> None:
        began = time.monotonic()
        while not answer.done():
            self._admin.poll(_POLL_S)
            waited_s = time.monotonic() - began
            for error in self._errors:
                if error.code() in (*_REFUSALS, KafkaError._SSL):
                    raise self._failure(error)
            is_down = any(t.code() == KafkaError._ALL_BROKERS_DOWN for t in self._errors)
            if waited_s > ANSWER_WITHIN_S or (is_down and waited_s > _CONNECT_WITHIN_S):
                raise BrokerUnreachable(self._bootstrap, self._reason(waited_s))

    def _failure(self, error: KafkaError) -> Exception:
        code = error.code()
        if code in _UNKNOWN_TOPIC:
            return TopicNotFound(self._topic, self._bootstrap)
        if code in _REFUSALS:
            return BrokerRefused(self._bootstrap, self._topic, error.str())
        if code == KafkaError._SSL and self._trusts_by_default:
            # Java trusts the certificate authorities in its own store, which may be different.
            message = f"TLS with the system's certificates fails ({error.str()})"
            return NotTranslatable(message)
        return self._unreachable(error)

    def _unreachable(self, error: KafkaError) -> SourceError:
        return BrokerUnreachable(self._bootstrap, error.str())

    def _reason(self, waited_s: float) -> str:
        first = next((t for t in self._errors if t.code() != KafkaError._ALL_BROKERS_DOWN), None)
        text = "no answer" if first is None else first.str()
        return f"{text} (within {waited_s:.0f} s)"
