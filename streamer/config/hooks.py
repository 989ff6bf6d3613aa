"""``hooks``: what is announced after each commit, and to whom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from pydantic import Field

from lakemark.errors import InvalidConfig
from streamer.config import settings
from streamer.config.errors import ConfigError, Problem
from streamer.config.section import FromList, Section
from streamer.config.settings import Secrets, Settings
from streamer.hooks.open_hook import check_hook
from streamer.hooks.settings import HookSettings

#: What stands for a name in the options of a hook.
_PLACEHOLDER = re.compile(r"\{(pipeline|table|topic)\}")


@dataclass(frozen=True, slots=True)
class HookNames:
    """The names that the options of a hook may contain.

    Attributes:
        pipeline: the name of the pipeline, for ``{pipeline}``.
        table: the name of its table, for ``{table}``.
        topic: the topic that it reads, for ``{topic}``; None if it reads no topic.
    """

    pipeline: str
    table: str
    topic: str | None

    def fill(self, option: str, text: str) -> str:
        """Replace the placeholders in the value of an option; in a URL, names are encoded.

        Raises:
            InvalidConfig: the value contains ``{topic}``, but the pipeline reads no topic.
        """
        names = {"pipeline": self.pipeline, "table": self.table, "topic": self.topic}

        def name_of(found: re.Match[str]) -> str:
            name = names[found[1]]
            if name is None:
                message = (
                    f"option {option} contains {{topic}}, but the pipeline reads no topic of "
                    "Kafka; use {table} or {pipeline}"
                )
                raise InvalidConfig(message)
            return quote(name, safe="") if option == "url" else name

        return _PLACEHOLDER.sub(name_of, text)


class HookConfig(Section):
    """Receivers to which each commit is announced, one entry for each receiver.

    After each commit, a thread sends a message, and repeats it until the receiver has it. A
    receiver that does not answer delays no batch. See [Hooks](hooks.md).
    """

    kind: Annotated[str, Field(min_length=1)]
    """``http`` posts a JSON message about each commit, and ``kafka`` produces it to a topic.
    ``openlineage`` sends lineage events, and ``opentelemetry`` sends traces of batches; they need
    the extra of the same name. The name of a hook that another package declares is accepted,
    too."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,64}$")] = ""
    """The name of the hook in logs, in metrics and in the commits of the table. Two hooks of a
    pipeline need different names. Default: ``kind``."""

    give_up_after_s: Annotated[float, Field(gt=0, le=31_536_000)] = 3600.0
    """A message that its receiver has not accepted for this number of seconds is dropped, which is
    logged and counted. Messages are sent in order, so later ones wait for it until then."""

    options: Settings = Field(default_factory=dict)
    """The options of the hook. [Hooks](hooks.md) lists those of each kind. In each of them,
    `{pipeline}`, `{table}` and `{topic}` stand for the names of the pipeline, of its table and of
    the topic that it reads."""

    headers: Secrets = Field(default_factory=dict)
    """Headers of HTTP requests, such as ``Authorization``. They are never printed."""

    properties: Settings = Field(default_factory=dict)
    """With ``kafka``: properties of the producer, as for Kafka's Java client, such as
    ``security.protocol`` and ``sasl.jaas.config``."""

    @property
    def shown_name(self) -> str:
        """The name of the hook, or the default one."""
        return self.name or self.kind

    def resolved(self, names: HookNames) -> HookSettings:
        """Return the settings with the values that files and environment variables contain.

        Args:
            names: what the placeholders in options stand for.

        Raises:
            ConfigError: a value cannot be found.
            InvalidConfig: see ``HookNames.fill``.
        """
        options: Mapping[str, str] = settings.resolve(self.options, "hooks.options")
        return HookSettings(
            options={name: names.fill(name, text) for name, text in options.items()},
            headers=settings.resolve(self.headers, "hooks.headers"),
            properties=settings.resolve(self.properties, "hooks.properties"),
        )


Hooks = Annotated[tuple[HookConfig, ...], FromList]


def hook_problems(hooks: Sequence[HookConfig], used: HookNames) -> Iterator[Problem]:
    """Yield a problem for each hook that does not exist, or whose settings are wrong."""
    names = [one.shown_name for one in hooks]
    for position, one in enumerate(hooks):
        path = f"hooks.{position}"
        if one.shown_name in names[:position]:
            yield Problem(
                path, f"is the second hook with the name {one.shown_name!r}; set another name"
            )
            continue
        try:
            check_hook(one.kind, one.resolved(used))
        except ConfigError:  # ``unresolved`` reports the missing value
            continue
        except InvalidConfig as error:
            yield Problem(path, str(error))


def unresolved_hooks(hooks: Sequence[HookConfig]) -> list[Problem]:
    """Return a problem for each value that this machine cannot find."""
    return [
        problem
        for position, one in enumerate(hooks)
        for name in ("options", "headers", "properties")
        for problem in settings.unresolved(getattr(one, name), f"hooks.{position}.{name}")
    ]
