"""Checks that the receivers of a pipeline's hooks answer. No check announces a commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from streamer.checks.check import Check, Finding
from streamer.config.hooks import HookConfig, HookNames
from streamer.hooks.open_hook import open_hook


def hook_checks(hooks: Sequence[HookConfig], names: HookNames) -> Iterator[Check]:
    """Yield a check for each hook, whose options may contain these names."""
    for one in hooks:
        yield Check(f"hook {one.shown_name}", partial(_check, one, names))


def _check(config: HookConfig, names: HookNames) -> Finding:
    """Ask the receiver.

    Raises:
        InvalidConfig: a setting is wrong, or a library is not installed.
        HookUnavailable: the receiver does not answer, or refuses the credentials.
        NoticeRefused: the receiver refuses the message with which the hook asks.
    """
    hook = open_hook(config.kind, config.resolved(names))
    try:
        return Finding(hook.check())
    finally:
        hook.close()
