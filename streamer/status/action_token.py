"""The secret with which clients of the endpoint may ask for actions."""

from __future__ import annotations

import hmac
import logging

from streamer.config.metrics import LEAST_TOKEN_LENGTH, TOKEN_PATH
from streamer.config.settings import Setting

_LOG = logging.getLogger(__name__)

_SCHEME = "bearer"


class ActionToken:
    """Checks the token of a request.

    Args:
        setting: the token, or where it is. A file or variable is read at each request, so that the
            token can be replaced while the process runs.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def is_in(self, authorization: str) -> bool:
        """Return whether the value of a header ``Authorization`` is ``Bearer`` and the token.

        The duration of the comparison does not depend on how many characters are right.
        """
        scheme, _, given = authorization.partition(" ")
        expected = self._resolve()
        is_long = len(expected) >= LEAST_TOKEN_LENGTH
        # http.server decodes headers as Latin-1.
        is_same = hmac.compare_digest(given.strip().encode("latin-1", "replace"), expected.encode())
        return scheme.lower() == _SCHEME and is_long and is_same

    def _resolve(self) -> str:
        try:
            return self._setting.resolve()
        except (LookupError, OSError, UnicodeDecodeError) as error:
            _LOG.error("no action is accepted, because %s cannot be read: %s", TOKEN_PATH, error)
            return ""
