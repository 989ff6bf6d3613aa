"""The protocol of hooks."""

from __future__ import annotations

from typing import Protocol

from lakemark.errors import Permanent, Retriable
from streamer.hooks.notices import Notice


class HookUnavailable(Retriable):
    """The receiver did not answer, or refuses everything for now; send the notice again."""


class NoticeRefused(Permanent):
    """The receiver refuses this notice, and would refuse it again."""


class Hook(Protocol):
    """Announces what a pipeline does to one receiver.

    One thread calls all methods. Every method raises ``HookUnavailable`` if the receiver does not
    answer within about half a minute. A hook that an installed package provides may raise any other
    error, too, which counts as ``HookUnavailable``. No message may contain a secret.
    """

    def send(self, notice: Notice, /) -> bool:
        """Send a notice, and return when the receiver has it; return False if it needs no message.

        The same notice may be sent again, because an answer was lost or the process died. A
        receiver recognises a commit by its table and its instant.

        Raises:
            HookUnavailable: the receiver does not have the notice, or its answer was lost.
            NoticeRefused: the receiver will never accept this notice.
        """
        ...

    def check(self) -> str:
        """Ask the receiver whether it would accept notices, without sending one.

        Returns:
            What the receiver answered, for people.

        Raises:
            HookUnavailable: it would not, or does not answer.
            NoticeRefused: it refuses the message with which this method asks, as it would refuse a
                notice. Not every hook asks with a message.
        """
        ...

    def close(self) -> None:
        """Release the connection, without waiting for the receiver."""
        ...
