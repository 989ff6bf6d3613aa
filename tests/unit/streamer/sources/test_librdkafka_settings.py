"""The properties of Kafka's Java client are translated for librdkafka, or named."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamer.sources.librdkafka_settings import NotTranslatable, client_settings

BROKER = "broker:9092"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def settings(**properties: str) -> dict[str, str | int]:
    """Return librdkafka's settings that secure the connection."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    found = client_settings(BROKER, given)
    return {n: v for n, v in found.items() if n.split(".")[0] in ("security", "sasl", "ssl")}


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
        client_settings(BROKER, given)
    assert "secret" not in str(raised.value)
