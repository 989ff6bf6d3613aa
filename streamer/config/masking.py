"""What of a configuration nobody else should read, and what may be shown in its place.

A value is masked when the name of its setting has a secret word in it, or the value itself: Java
options, connection strings and JSON hold secrets under harmless names. Names of places and classes
(``/etc/secrets/kafka.jks``) are shown.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

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
#: A user alone before a host, which may be a token. Azure names containers so: ``abfss://c@host``.
_USER_ALONE = re.compile(
    r"\b(?!(?:abfs|wasb)s?://)(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<token>[^\s/:]+)@", re.IGNORECASE
)
#: The same as ``_USER_AND_PASSWORD`` for a password that is not encoded and has a ``/`` in it. It
#: may also match a path with an ``@`` behind a port: what may be a password is not shown.
_ODD_PASSWORD = re.compile(r"[:/]/?[^\s:/]*:(?P<of_url>\S*)@")
_PASSWORD_IN_URL = re.compile(r"://[^\s:/]*:\S*@")
#: Shorter ones are names of users rather than tokens, and may be part of any word.
_SHORTEST_TOKEN = 8
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
    if any(one.search(text) for one in (_USER_AND_PASSWORD, _ODD_PASSWORD, _USER_ALONE)):
        return True
    return sounds_secret(text) and _PLACE_OR_CLASS.fullmatch(text) is None


def passwords_in(text: str) -> list[str]:
    """The passwords before a host in a value, and tokens; as they are, and with %XX decoded."""
    found = [match["of_url"] or match["of_host"] for match in _USER_AND_PASSWORD.finditer(text)]
    found += [match["of_url"] for match in _ODD_PASSWORD.finditer(text)]
    tokens = (match["token"] for match in _USER_ALONE.finditer(text))
    found += [token for token in tokens if len(token) >= _SHORTEST_TOKEN]
    return [form for one in found if one for form in (one, unquote(one))]


def without_user_info(text: str) -> str:
    """A text with ``***`` for the user and the password, or the token, of each URL in it."""
    shown = _PASSWORD_IN_URL.sub(f"://{MASK}@", text)
    return _USER_ALONE.sub(rf"\g<scheme>{MASK}@", shown)


def name_only(text: str) -> str:
    """What may be shown of a text that should be a name, and may have its value behind it."""
    return _END_OF_NAME.split(text, maxsplit=1)[0]
