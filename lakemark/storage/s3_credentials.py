"""Credentials of S3 in a file that may be replaced at any time, such as ``~/.aws/credentials``.

The client of S3 does not read such files. So each request of the client asks this module, which
reads the file again when it has changed.
"""

from __future__ import annotations

import os
from configparser import ConfigParser, Error
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING

from lakemark.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import S3Credential

#: lakemark's own storage options: the path of the file, and the section to read.
CREDENTIALS_FILE, PROFILE = "credentials_file", "profile"

_DEFAULT_PROFILE = "default"

#: The client asks for credentials again before they expire, at most every 100 ms. It does so at
#: each request if they expire within five minutes.
_VALID_FOR = timedelta(minutes=1)


class CredentialsFile:
    """The keys in one section of a file; a provider of credentials for ``S3Store``.

    Args:
        path: the path of the file, in the format of the AWS command line (``~/.aws/credentials``).
        profile: the section.

    Raises:
        InvalidConfig: the file cannot be read, or lacks the section or a key.
    """

    def __init__(self, path: str, profile: str = _DEFAULT_PROFILE) -> None:
        self._path, self._profile = os.path.expanduser(path), profile
        self._lock = Lock()
        self._version = self._find_version()  # first, so that a later change is noticed
        self._keys = self._read()

    def __call__(self) -> S3Credential:
        """Return the current keys. While the file cannot be read, these are the former ones."""
        with self._lock:
            self._refresh()
            keys = self._keys
        return {
            "access_key_id": keys["aws_access_key_id"],
            "secret_access_key": keys["aws_secret_access_key"],
            "token": keys.get("aws_session_token"),
            "expires_at": datetime.now(UTC) + _VALID_FOR,
        }

    def _refresh(self) -> None:
        version = self._find_version()
        if version is None or version == self._version:
            return
        try:
            self._keys, self._version = self._read(), version
        except InvalidConfig:  # another program is writing the file
            return

    def _find_version(self) -> object:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> Mapping[str, str]:
        parser = ConfigParser(interpolation=None, default_section="")
        try:
            with open(self._path, encoding="utf-8") as file:
                parser.read_file(file)
        except OSError as error:
            raise self._unusable(error.strerror or "cannot be read") from None
        except (Error, UnicodeDecodeError):  # their messages quote lines of the file
            problem = "is not a file of sections and keys"
            raise self._unusable(problem) from None
        if not parser.has_section(self._profile):
            problem = f"has no section [{self._profile}]; set the option {PROFILE}"
            raise self._unusable(problem)
        keys = dict(parser[self._profile])
        for name in ("aws_access_key_id", "aws_secret_access_key"):
            if not keys.get(name):
                problem = f"has no {name} in section [{self._profile}]"
                raise self._unusable(problem)
        return keys

    def _unusable(self, reason: str) -> InvalidConfig:
        return InvalidConfig(f"storage option {CREDENTIALS_FILE}: {self._path}: {reason}")


def take_credentials(options: dict[str, str]) -> CredentialsFile | None:
    """Remove lakemark's own options of credentials, and return the file; None if there is none.

    Raises:
        InvalidConfig: the file is not usable, or other options give keys, too.
    """
    path, profile = options.pop(CREDENTIALS_FILE, None), options.pop(PROFILE, None)
    if path is None:
        if profile is not None:
            message = f"storage option {PROFILE} is only for {CREDENTIALS_FILE}; set both, or none"
            raise InvalidConfig(message)
        return None
    for name in options:
        if name.lower().removeprefix("aws_") in _KEYS:
            message = f"storage options {CREDENTIALS_FILE} and {name} both give keys; remove one"
            raise InvalidConfig(message)
    return CredentialsFile(path, profile or _DEFAULT_PROFILE)


_KEYS = ("access_key_id", "secret_access_key", "session_token", "token")
