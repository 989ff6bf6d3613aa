"""The check of the broker before Spark starts, and the translation of properties for librdkafka."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from streamer.sources import topic_check
from streamer.sources.errors import BrokerRefused, BrokerUnreachable, TopicNotFound
from streamer.sources.topic_check import NotTranslatable, check_topic, client_settings
from tests.fixtures.kafka import Kafka

BROKER = "broker:9092"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def settings(**properties: str) -> dict[str, str | int]:
    """Return librdkafka's settings that secure the connection."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    found = client_settings(BROKER, given)
    return {n: v for n, v in found.items() if n.split(".")[0] in ("security", "sasl", "ssl")}


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections, but at which no broker answers."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port where nothing listens."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def test_wrong_port_is_reported_without_a_jvm(closed_port: int) -> None:
    with pytest.raises(BrokerUnreachable, match="Connection refused") as raised:
        check_topic(f"127.0.0.1:{closed_port}", "orders", {})
    assert f"answered at 127.0.0.1:{closed_port}: " in str(raised.value)


def test_unknown_host_is_reported() -> None:
    with pytest.raises(BrokerUnreachable, match="Failed to resolve"):
        check_topic("broker.invalid:9092", "orders", {})


def test_port_that_never_answers_is_reported(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_check, "ANSWER_WITHIN_S", 1.0)
    with pytest.raises(BrokerUnreachable):
        check_topic(f"127.0.0.1:{silent_port}", "orders", {})


@pytest.mark.kafka
def test_topic_that_is_there_passes_and_one_that_is_not_is_named(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic)
    check_topic(kafka.bootstrap, topic, {"fetch.max.bytes": "1000"})
    check_topic(f"PLAINTEXT://{kafka.bootstrap}", topic, {})
    with pytest.raises(TopicNotFound, match=f"there is no topic {topic}-x at {kafka.bootstrap}"):
        check_topic(kafka.bootstrap, f"{topic}-x", {})


@pytest.mark.kafka
def test_broker_without_sasl_is_reported(kafka: Kafka, topic: str) -> None:
    """Such a broker closes the connection when the client starts SASL."""
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="u" password="p";',
    }
    with pytest.raises((BrokerRefused, BrokerUnreachable)):
        check_topic(kafka.bootstrap, topic, properties)


def test_connection_without_security_needs_no_properties() -> None:
    assert settings() == {"security.protocol": "PLAINTEXT"}
    assert client_settings("PLAINTEXT://a:1,b:2", {})["bootstrap.servers"] == "a:1,b:2"


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", f'{PLAIN} required username="me" password="a \\"b\\\\";'),
        ("SCRAM-SHA-512", f'\n{SCRAM} required\n  username = me\n  password="a \\"b\\\\";'),
        ("SCRAM-SHA-256", f'{SCRAM} required password="a \\"b\\\\" username=me ;'),
        ("PLAIN", f"{PLAIN} required username='me' password='a \"b\\\\';"),
    ],
)
def test_passwords_of_login_modules_are_translated(mechanism: str, jaas: str) -> None:
    assert settings(
        security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=jaas
    ) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "me",
        "sasl.password": 'a "b\\',
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_pem_and_pkcs12_stores_are_translated() -> None:
    pem: Mapping[str, str] = {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": "/ca.pem",
        "ssl_keystore_type": "PKCS12",
        "ssl_keystore_location": "/me.p12",
        "ssl_keystore_password": "secret",
        "ssl_endpoint_identification_algorithm": "",
    }
    assert settings(security_protocol="SSL", **pem) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism OAUTHBEARER"),
        ({}, "sasl.mechanism GSSAPI"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        (
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN} required username="me" password="secret\\101";',
            },
            "sasl.jaas.config",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.me.Login required;"}, "jaas.config"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.client.callback.handler.class": "com.me.Handler"},
            "sasl.client.callback.handler.class",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/t.jks"}, "ssl.truststore"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/k.jks"}, "ssl.keystore"),
        (
            {"security.protocol": "SSL", "ssl.engine.factory.class": "com.me.F"},
            "ssl.engine.factory",
        ),
    ],
)
def test_unsupported_property_is_named_without_its_secret(
    properties: dict[str, str], named: str
) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "ssl.key.password": "secret", **properties}
    with pytest.raises(NotTranslatable, match=named.replace(".", r"\.")) as raised:
        check_topic(BROKER, "orders", given)
    assert "secret" not in str(raised.value)
