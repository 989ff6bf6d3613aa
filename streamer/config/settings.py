"""Settings that are passed to Kafka, Spark or a store.

The pipeline file contains the value, or names its origin: ``{env: NAME}`` is an environment
variable, and ``{file: PATH}`` is a file whose text, without the final line break, is the value. The
variable and the file are read only when the run needs them. When a configuration is dumped, a value
that is secret by its name or its text is masked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from streamer.config.errors import ConfigError, Problem
from streamer.config.masking import MASK, holds_secret, name_only, sounds_secret

_SCALARS = (str, int, float)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, or the environment variable or file that contains the value.

    Attributes:
        origin: what ``text`` is.
        text: the value, the name of an environment variable, or a path.
        is_secret: whether the value is secret, whatever its name is.
    """

    origin: Literal["value", "env", "file"]
    text: str = field(repr=False)
    is_secret: bool = False

    def resolve(self) -> str:
        """Read the value.

        Raises:
            LookupError: the variable is not set.
            OSError: the file cannot be read.
        """
        if self.origin == "env":
            if self.text not in os.environ:
                message = f"environment variable {self.text} is not set"
                raise LookupError(message)
            return os.environ[self.text]
        if self.origin == "file":
            return Path(self.text).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
        return self.text


def resolve(settings: Mapping[str, Setting], path: str) -> dict[str, str]:
    """Read the values of all settings.

    Args:
        settings: the settings by name.
        path: the path of the section in the pipeline file, for the error.

    Raises:
        ConfigError: some values cannot be found. The error names all of them.
    """
    problems = unresolved(settings, path)
    if problems:
        raise ConfigError(problems)
    return {name: setting.resolve() for name, setting in settings.items()}


def unresolved(settings: Mapping[str, Setting], path: str) -> list[Problem]:
    """Return a problem for each setting whose value cannot be found."""
    problems = []
    for name, setting in settings.items():
        try:
            setting.resolve()
        except LookupError as error:
            problems.append(Problem(f"{path}.{name}", str(error.args[0])))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            problems.append(Problem(f"{path}.{name}", f"cannot read {setting.text}: {reason}"))
    return problems


def _parse_all(given: object) -> Mapping[str, Setting]:
    if not isinstance(given, Mapping):
        message = "expected a mapping of names to values"
        raise ValueError(message)
    return {_name(name): _parse(str(name), value) for name, value in given.items()}


def _parse_secrets(given: object) -> Mapping[str, Setting]:
    return {name: replace(one, is_secret=True) for name, one in _parse_all(given).items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        message = "the name of a setting must be text; quote it"
        raise ValueError(message)
    return name


def _parse(name: str, given: object) -> Setting:
    if isinstance(given, Setting):
        return given
    if isinstance(given, bool):
        return Setting("value", str(given).lower())
    if isinstance(given, _SCALARS):
        return Setting("value", str(given))
    if isinstance(given, Mapping) and len(given) == 1:
        origin, text = next(iter(given.items()))
        if origin in ("env", "file") and isinstance(text, str) and text:
            return Setting(origin, text)
    message = f"{name_only(name)}: expected a value, {{env: NAME}} or {{file: PATH}}"
    raise ValueError(message)


def _masked(settings: Mapping[str, Setting]) -> dict[str, str | dict[str, str]]:
    return {name: _shown(name, setting) for name, setting in settings.items()}


def _shown(name: str, setting: Setting) -> str | dict[str, str]:
    if setting.origin == "value":
        is_secret = setting.is_secret or sounds_secret(name) or holds_secret(setting.text)
        return MASK if is_secret else setting.text
    return {setting.origin: setting.text}


_ONE_OF = {
    "oneOf": [
        {"type": ["string", "number", "boolean"]},
        {
            "type": "object",
            "properties": {"env": {"type": "string"}},
            "required": ["env"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"file": {"type": "string"}},
            "required": ["file"],
            "additionalProperties": False,
        },
    ]
}


def _parse_secret(given: object) -> Setting:
    return _parse("secret", given)


def _masked_secret(setting: Setting) -> str | dict[str, str]:
    return _shown("secret", setting)


#: One secret, or its origin. A dump masks the value.
Secret = Annotated[
    Setting,
    PlainValidator(_parse_secret),
    PlainSerializer(_masked_secret),
    WithJsonSchema(_ONE_OF),
]

#: Settings by name. A dump masks the secrets.
Settings = Annotated[
    Mapping[str, Setting],
    PlainValidator(_parse_all),
    PlainSerializer(_masked),
    WithJsonSchema({"type": "object", "additionalProperties": _ONE_OF}),
    Field(default_factory=dict),
]

#: Settings by name that are all secret. A dump masks every value.
Secrets = Annotated[
    Mapping[str, Setting],
    PlainValidator(_parse_secrets),
    PlainSerializer(_masked),
    WithJsonSchema({"type": "object", "additionalProperties": _ONE_OF}),
    Field(default_factory=dict),
]
