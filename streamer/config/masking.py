"""Recognises secrets in a configuration, and masks them.

A value is masked if it contains a word for a secret, or if the name of its setting does. The value
matters, too, because Java options, connection strings and JSON contain secrets under harmless
names. Paths and class names (``/etc/secrets/kafka.jks``) are not masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote

MASK = "***"

#: Words for secrets. They may be anywhere in a name; names in camel case are split before.
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
    "(?<![a-z])(sas|sig|salt)(?![a-z])",
)
#: Keys of a store or a cipher. Other keys, such as ``record_key``, are not secret.
_KEYS = (
    r"(access|account|sas|api|ssl|ssh|storage|service|keystore|customer|encryption|cipher)"
    r"[._-]?(account[._-]?)?key(?![a-z]|[._-]?(store|size|type))",
    r"(?<!\block)(?<!record)(?<!tombstone)(?<!partition)(?<!primary)(?<!sort)[._-]keys?(?=$|[\"']?\s*[:=])",
)
_SECRET = re.compile("|".join((*_WORDS, *_KEYS)), re.IGNORECASE)
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: ``//user:password@host``, even after a broken scheme (``s3/``, ``s3:/``). Also
#: ``user:password@host`` without a scheme, because brokers and proxies are written like this.
_USER_AND_PASSWORD = re.compile(
    r"[:/]/?[^/\s@]*:(?P<of_url>[^/\s]*)@"
    r"|(?:^|[\s,;=\"'\[({])[^\s/:@,;=\"'\[({]+:(?!//)(?P<of_host>[^\s/]+)@"
)
#: A user without a password before a host, because the user may be a token. In Azure's
#: ``abfss://c@host``, the text before the ``@`` is a container.
_USER_ALONE = re.compile(
    r"\b(?!(?:abfs|wasb)s?://)(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<token>[^\s/:]+)@", re.IGNORECASE
)
#: Like ``_USER_AND_PASSWORD``, but for an unencoded password that contains a ``/``. This may also
#: match a path that has a port and then an ``@``; then more than necessary is masked.
_ODD_PASSWORD = re.compile(r"[:/]/?[^\s:/]*:(?P<of_url>\S*)@")
_PASSWORD_IN_URL = re.compile(r"://[^\s:/]*:\S*@")
#: Shorter tokens are not masked: they are user names, and could occur in ordinary words.
_MIN_TOKEN_LENGTH = 8
#: Shorter secrets are replaced only as whole words, because they could occur inside other words.
_MIN_PART_LENGTH = 8
#: What may be before a whole word: no letter or digit, or an escaped character, such as ``%20``.
_BEFORE_WORD = (
    r"(?:(?<![^\W_])|(?<=\\[abfnrtv])|(?<=%[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})"
    r"|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\U[0-9A-Fa-f]{8}))"
)
_AFTER_WORD = r"(?![^\W_])"
_PATH_OR_CLASS = re.compile(r"(file:)?[\w/$-]*[./][\w./$-]*")
_END_OF_NAME = re.compile(r"[=:\s]")


class SecretGiven(ValueError):
    """A value contains a secret that does not belong in this setting, so it must not be shown.

    The message names the setting in which the secret belongs, and does not repeat the secret.
    """


def sounds_secret(name: str) -> bool:
    """Return whether the name of a setting contains a word for a secret."""
    return _SECRET.search(_CAMEL_CASE.sub("_", name)) is not None


def holds_secret(text: str) -> bool:
    """Return whether a value contains a secret, regardless of the name of its setting."""
    if any(one.search(text) for one in (_USER_AND_PASSWORD, _ODD_PASSWORD, _USER_ALONE)):
        return True
    return sounds_secret(text) and _PATH_OR_CLASS.fullmatch(text) is None


def passwords_in(text: str) -> list[str]:
    """Return the passwords and tokens before a host in a value, as written and URL-decoded."""
    found = [match["of_url"] or match["of_host"] for match in _USER_AND_PASSWORD.finditer(text)]
    found += [match["of_url"] for match in _ODD_PASSWORD.finditer(text)]
    tokens = (match["token"] for match in _USER_ALONE.finditer(text))
    found += [token for token in tokens if len(token) >= _MIN_TOKEN_LENGTH]
    return [form for one in found if one for form in (one, unquote(one))]


def without_user_info(text: str) -> str:
    """Replace the user and password, or the token, in each URL of a text by ``***``."""
    shown = _PASSWORD_IN_URL.sub(f"://{MASK}@", text)
    return _USER_ALONE.sub(rf"\g<scheme>{MASK}@", shown)


def name_only(text: str) -> str:
    """Return the name at the start of a text, without a value that may follow."""
    return _END_OF_NAME.split(text, maxsplit=1)[0]


def build_option_redactor(options: Iterable[str]) -> Callable[[str], str]:
    """Build a function that replaces the secrets of store options in a text by ``***``.

    Args:
        options: each ``NAME=VALUE``, as on a command line.
    """
    pairs = (option.partition("=") for option in options)
    return redact_values(
        secret
        for name, _, value in pairs
        if sounds_secret(name) or holds_secret(value)
        for secret in (value, *passwords_in(value))
    )


def redact_values(secrets: Iterable[str]) -> Callable[[str], str]:
    """Build a function that replaces these secrets, and everything before the host in URLs.

    Short secrets are replaced only as whole words: a password ``p`` must not change other words.
    """
    known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    values = re.compile("|".join(map(_pattern_of, known))) if known else None

    def redacted(text: str) -> str:
        shown = values.sub(MASK, text) if values else text
        return without_user_info(shown)

    return redacted


def _pattern_of(secret: str) -> str:
    """Return the pattern that finds a secret in a text."""
    pattern = re.escape(secret)
    if len(secret) >= _MIN_PART_LENGTH:
        return pattern
    before = _BEFORE_WORD if secret[0].isalnum() else ""
    after = _AFTER_WORD if secret[-1].isalnum() else ""
    return f"{before}{pattern}{after}"


def redact_tree(value: object, redacted: Callable[[str], str]) -> object:
    """Return a value of mappings, lists and scalars in which every text was redacted."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {str(name): redact_tree(one, redacted) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_tree(one, redacted) for one in value]
    return value
