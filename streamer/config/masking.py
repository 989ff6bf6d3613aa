"""What of a configuration nobody else should read, and what may be shown in its place.

A value is masked when the name of its setting has a secret word in it, or the value itself: Java
options, connection strings and JSON hold secrets under harmless names. Names of places and classes
(``/etc/secrets/kafka.jks``) are shown.
"""

from __future__ import annotations

import re

MASK = "***"

#: Words that stand for a secret anywhere in a name; names in camel case are taken apart first.
_WORDS = (
    "pass(word|phrase|code|wd)",
    "pwd",
    "secret",
    "token",
    "jaas",
    "credentials?",
    "assertion",
    "signature",
    "private",
    r"service[._-]account(?![._-]name)",
    r"user[._-]?info",
    "(?<!by)(?<!com)pass(?![a-z])",
    "(?<![a-z])(sas|sig)(?![a-z])",
)
#: Keys of a store or a cipher. Others identify something: ``record_key``, ``key.deserializer``.
_KEYS = (
    r"(access|account|sas|api|ssl|ssh|storage|service|keystore|customer|encryption|cipher)"
    r"[._-]?(account[._-]?)?key(?![a-z]|[._-]?(store|size|type))",
    r"(?<!record)(?<!tombstone)(?<!partition)(?<!primary)(?<!sort)[._-]keys?(?=$|[\"']?\s*[:=])",
)
_SECRET = re.compile("|".join((*_WORDS, *_KEYS)), re.IGNORECASE)
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: ``//user:password@host``, also after a broken scheme (``s3/``, ``s3:/``), and
#: ``user:password@host`` without a scheme, as brokers and proxies are named.
_USER_AND_PASSWORD = re.compile(
    r"[:/]/?[^/\s@]*:(?P<of_url>[^/\s]*)@"
    r"|(?:^|[\s,;=\"'\[({])[^\s/:@,;=\"'\[({]+:(?!//)(?P<of_host>[^\s/]+)@"
)
_PLACE_OR_CLASS = re.compile(r"(file:)?[\w/$-]*[./][\w./$-]*")
_END_OF_NAME = re.compile(r"[=:\s]")


class SecretGiven(ValueError):
    """A setting that takes no secret was given one; the value must not be shown.

    The message says where the secret belongs, and does not repeat it.
    """


def sounds_secret(name: str) -> bool:
    """Whether a setting of this name holds something nobody else should read."""
    return _SECRET.search(_CAMEL_CASE.sub("_", name)) is not None


def holds_secret(text: str) -> bool:
    """Whether a value, whatever its setting is called, has a secret in it."""
    if _USER_AND_PASSWORD.search(text):
        return True
    return sounds_secret(text) and _PLACE_OR_CLASS.fullmatch(text) is None


def passwords_in(text: str) -> list[str]:
    """The passwords that stand between a user and a host in a value."""
    found = (match["of_url"] or match["of_host"] for match in _USER_AND_PASSWORD.finditer(text))
    return [password for password in found if password]


def name_only(text: str) -> str:
    """What may be shown of a text that should be a name, and may have its value behind it."""
    return _END_OF_NAME.split(text, maxsplit=1)[0]
