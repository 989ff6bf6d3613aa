"""Translates the properties of Kafka's Java client to settings of librdkafka.

The two clients have different security properties, and librdkafka does not support all of Java's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from streamer.sources.kafka_login import METHOD, MSK_IAM, MSK_MODULE, OIDC_PROPERTIES
from streamer.sources.msk_token import SignerMissing, msk_token

_SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+"
    r"required\s+(?P<options>.*?)\s*;\s*",
    re.DOTALL,
)
_MSK_JAAS = re.compile(
    rf"\s*{re.escape(MSK_MODULE)}\s+required\s*(?P<options>.*?)\s*;\s*", re.DOTALL
)
#: Values that Kafka's ``JaasConfig`` reads with Java's ``StreamTokenizer``. Escapes such as ``\n``
#: and ``\101`` mean other characters there, so values with such escapes are not translated.
_JAAS_VALUE = (
    r"""(?:"(?P<double>(?:[^"\\]|\\[^0-7abfnrtv])*)"|'(?P<single>(?:[^'\\]|\\[^0-7abfnrtv])*)'"""
    r"""|(?P<plain>[A-Za-z_$][\w.$-]*))"""
)
_JAAS_OPTION = re.compile(rf"(?P<name>\w+)\s*=\s*{_JAAS_VALUE}\s*")

#: Settings of librdkafka. ``oauth_cb`` is a function; the others are texts and numbers.
ClientSettings: TypeAlias = Mapping[str, Any]

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


def client_settings(bootstrap: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Translate the properties of Kafka's Java client to settings of librdkafka.

    Raises:
        NotTranslatable: librdkafka has no equivalent setting; the message names the property.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    settings: dict[str, Any] = {
        "bootstrap.servers": re.sub(r"[A-Za-z_]+://", "", bootstrap),
        "security.protocol": protocol,
        "log_level": 0,  # failures are raised, not printed
        "reconnect.backoff.ms": 200,
        "reconnect.backoff.max.ms": 1000,
    }
    if protocol.startswith("SASL"):
        settings.update(_sasl_settings(bootstrap, properties))
    if protocol.endswith("SSL"):
        settings.update(_tls_settings(properties))
    return settings


def _sasl_settings(bootstrap: str, properties: Mapping[str, str]) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism == MSK_IAM:
        return _msk_settings(bootstrap, properties)
    if mechanism == "OAUTHBEARER" and properties.get(METHOD) == "oidc":
        _refuse_others(properties, "sasl.", {"sasl.mechanism", *OIDC_PROPERTIES})
        own = {name: properties[name] for name in OIDC_PROPERTIES if name in properties}
        return {"sasl.mechanism": mechanism, **own}
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


def _msk_settings(bootstrap: str, properties: Mapping[str, str]) -> dict[str, Any]:
    _refuse_others(properties, "sasl.", ("sasl.mechanism", "sasl.jaas.config"))
    given = _MSK_JAAS.fullmatch(properties.get("sasl.jaas.config", f"{MSK_MODULE} required;"))
    options = {"": ""} if given is None else dict(_jaas_options(given["options"]))
    if options.keys() - {"awsProfileName"}:
        message = "sasl.jaas.config is not IAMLoginModule with at most awsProfileName"
        raise NotTranslatable(message)
    try:
        token = msk_token(bootstrap, os.environ, options.get("awsProfileName", ""))
    except SignerMissing as error:
        raise NotTranslatable(str(error)) from None
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}


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
