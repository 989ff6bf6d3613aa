"""``decode.schema_registry``: the registry that contains the schemas of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from streamer.config import settings
from streamer.config.masking import SecretGiven
from streamer.config.section import Section
from streamer.config.settings import Setting, Settings
from transforms.decode.schema_registry import RegistryCredentials, SchemaKind, SchemaRegistry

#: The path of the registry's credentials in the pipeline file, and the accepted names below it.
ACCESS_PATH = "decode.schema_registry.access"
_ACCESS_NAMES = tuple(member.name for member in fields(RegistryCredentials))


def _access(given: Mapping[str, Setting]) -> Mapping[str, Setting]:
    unknown = sorted(set(given) - set(_ACCESS_NAMES))
    if unknown:
        message = f"{unknown[0]} is not one of {', '.join(_ACCESS_NAMES)}"
        raise ValueError(message)
    if {"user", "token"} <= set(given):
        message = "user and token are alternatives; remove one of them"
        raise ValueError(message)
    for name, other in (("password", "user"), ("key_file", "certificate_file")):
        if name in given and other not in given:
            message = f"{name} needs {other}"
            raise ValueError(message)
    return given


def _without_user(url: object) -> object:
    if isinstance(url, str) and "@" in url:
        message = f"expected a URL without user, password or token; put them in {ACCESS_PATH}"
        raise SecretGiven(message)
    return url


class SchemaRegistryConfig(Section):
    """A schema registry with Confluent's REST interface.

    The driver and the Spark executors connect to it.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^@?#]+$"), BeforeValidator(_without_user)]
    """The address of the registry, such as ``https://registry:8081``. A URL that contains a user, a
    password or a token is refused; put these in ``access``."""

    access: Annotated[Settings, AfterValidator(_access)]
    """Credentials and certificates: ``user`` and ``password``, or ``token``; ``ca_file`` with the
    certificate authorities to trust; ``certificate_file`` and ``key_file`` for a client
    certificate. Files are in PEM format, at the same path on every executor."""

    retry_timeout_s: Annotated[float, Field(ge=0)] = 30.0
    """For how many seconds a request is repeated if the registry does not answer or is busy. Then
    the attempt to write the batch fails, and ``run.retry`` applies."""

    def registry(self, kind: SchemaKind = "AVRO") -> SchemaRegistry:
        """Return the registry, with its secrets.

        Args:
            kind: the kind of the schemas of the values.

        Raises:
            ConfigError: a secret cannot be found.
        """
        found = settings.resolve(self.access, ACCESS_PATH)
        return SchemaRegistry(self.url, RegistryCredentials(**found), self.retry_timeout_s, kind)
