"""Logins with tokens: one set of properties of ``source.consumer`` for both clients of Kafka.

- ``sasl.mechanism: OAUTHBEARER`` with ``sasl.oauthbearer.method: oidc``: the client requests tokens
  from an OpenID provider. The properties have librdkafka's names (``Configuration.md`` of
  librdkafka). Kafka's Java client expects a part of them in ``sasl.jaas.config``
  (``OAuthBearerLoginCallbackHandler``).
- ``sasl.mechanism: AWS_MSK_IAM``: the client signs tokens with credentials of AWS. In the JVM,
  classes of ``aws-msk-iam-auth`` do this; for librdkafka, ``streamer.sources.msk_token``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MECHANISM: Final = "sasl.mechanism"
METHOD: Final = "sasl.oauthbearer.method"
MSK_IAM: Final = "AWS_MSK_IAM"

#: The certificates that are trusted for the token endpoint.
CA_FILE: Final = "https.ca.location"

_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID, _CLIENT_SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
_SCOPE, _EXTENSIONS = "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions"

#: The properties of a login with tokens of an OpenID provider, as librdkafka names them.
OIDC_PROPERTIES: Final = (
    METHOD,
    _ENDPOINT,
    _CLIENT_ID,
    _CLIENT_SECRET,
    _SCOPE,
    _EXTENSIONS,
    CA_FILE,
)
#: The properties among them that Kafka's Java client does not have.
_ONLY_HERE = (METHOD, _CLIENT_ID, _CLIENT_SECRET, _EXTENSIONS, CA_FILE)
_REQUIRED = (_ENDPOINT, _CLIENT_ID, _CLIENT_SECRET)

#: Classes of Kafka's Java client.
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_MODULE, _HANDLER = f"{_OAUTH}.OAuthBearerLoginModule", f"{_OAUTH}.OAuthBearerLoginCallbackHandler"

_JAAS, _LOGIN_HANDLER = "sasl.jaas.config", "sasl.login.callback.handler.class"
_CLIENT_HANDLER = "sasl.client.callback.handler.class"

#: Classes of ``aws-msk-iam-auth``, and its Maven coordinate.
_MSK = "software.amazon.msk.auth.iam"
MSK_MODULE: Final = f"{_MSK}.IAMLoginModule"
MSK_HANDLER: Final = f"{_MSK}.IAMClientCallbackHandler"
MSK_COORDINATE: Final = "software.amazon.msk:aws-msk-iam-auth:2.3.2"

#: Kafka's Java client waits for ever for an endpoint that accepts connections and does not answer,
#: unless these are set.
_ANSWER_WITHIN: Final = {
    "sasl.login.connect.timeout.ms": "10000",
    "sasl.login.read.timeout.ms": "10000",
}

_EXTENSION = re.compile(r"([A-Za-z]+)=([^,]*)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_login(names: Mapping[str, str | None]) -> None:
    """Check that the properties of a login with tokens are complete.

    Args:
        names: the properties, with the values that are in the pipeline file. The value of another
            property, which a file or the environment contains, is None.

    Raises:
        ValueError: a property is missing, or belongs to another login.
    """
    given = [name for name in _ONLY_HERE if name in names]
    if not given or names.get(METHOD) == "default":
        return
    if METHOD not in names:
        message = f"{given[0]} is only for {METHOD}: oidc; add it"
        raise ValueError(message)
    if names[METHOD] not in ("oidc", None):
        message = f"{METHOD} must be oidc"
        raise ValueError(message)
    if names.get(MECHANISM, None) not in ("OAUTHBEARER", None) or MECHANISM not in names:
        message = f"{METHOD}: oidc needs {MECHANISM}: OAUTHBEARER"
        raise ValueError(message)
    if missing := [name for name in _REQUIRED if name not in names]:
        message = f"{METHOD}: oidc needs {', '.join(missing)}"
        raise ValueError(message)
    for name in (_JAAS, _LOGIN_HANDLER):
        if name in names:
            message = f"{name} is derived from {METHOD}: oidc; remove it"
            raise ValueError(message)


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for Kafka's Java client; those of other logins are not changed.

    Raises:
        ValueError: a value has a character that the Java client cannot read.
    """
    if properties.get(MECHANISM) == MSK_IAM:
        derived = {_JAAS: f"{MSK_MODULE} required;", _CLIENT_HANDLER: MSK_HANDLER}
        return {**derived, **properties}
    if properties.get(METHOD) != "oidc":
        return dict(properties)
    kept = {name: text for name, text in properties.items() if name not in OIDC_PROPERTIES}
    return {
        **_ANSWER_WITHIN,
        **kept,
        _ENDPOINT: properties[_ENDPOINT],
        _LOGIN_HANDLER: _HANDLER,
        _JAAS: _jaas(_MODULE, _oidc_options(properties)),
    }


def _oidc_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Java's login module."""
    options = {"clientId": properties[_CLIENT_ID], "clientSecret": properties[_CLIENT_SECRET]}
    if scope := properties.get(_SCOPE):
        options["scope"] = scope
    for name, value in _EXTENSION.findall(properties.get(_EXTENSIONS, "")):
        options[f"extension_{name}"] = value
    if ca_file := properties.get(CA_FILE):
        options |= {"ssl.truststore.location": ca_file, "ssl.truststore.type": "PEM"}
    return options


def _jaas(module: str, options: Mapping[str, str]) -> str:
    return f"{module} required {' '.join(f'{name}={_quoted(v)}' for name, v in options.items())};"


def _quoted(value: str) -> str:
    """Quote a value for Kafka's ``JaasConfig``, which reads it with Java's ``StreamTokenizer``."""
    if _CONTROL.search(value):
        message = "a property of the login contains a line break or another control character"
        raise ValueError(message)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
