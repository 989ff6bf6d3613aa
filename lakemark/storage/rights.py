"""Proves the rights that a writer of a table needs, by using each of them in a folder of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from lakemark.errors import HudiError, InvalidConfig
from lakemark.storage.open_storage import canonical_url, open_storage
from lakemark.storage.probe import check_conditional_puts
from lakemark.storage.storage import AccessDenied, NotFound, StorageLocation
from lakemark.storage.trial_folders import TrialFolder

LIST, CREATE, READ, PUBLISH, DELETE = "list", "create", "read", "publish (copy)", "delete"
CONDITIONAL = "conditional requests"

#: Predefined roles with all rights, by the kind of store.
_ROLES = {
    "gs": "the role Storage Object User for the bucket",
    "az": "the role Storage Blob Data Contributor for the container",
}


class RightsMissing(InvalidConfig):
    """The store does not allow these credentials everything that a writer of a table needs.

    Attributes:
        url: the canonical URL of the table's root.
        missing: the names of the missing rights.
        leftovers: the paths of objects that could not be deleted.
    """

    def __init__(
        self, url: str, refusals: Mapping[str, HudiError], leftovers: tuple[str, ...] = ()
    ) -> None:
        first = str(next(iter(refusals.values())))
        reason = first.rpartition("; ")[0] or first  # without the remedy
        remaining = f"; {', '.join(leftovers)} could not be deleted" if leftovers else ""
        super().__init__(
            f"{url}: not allowed: {', '.join(refusals)} ({reason}){remaining}; {_remedy(url)}"
        )
        self.url, self.missing, self.leftovers = url, tuple(refusals), leftovers


def check_rights(location: StorageLocation, folder: TrialFolder) -> tuple[str, ...]:
    """Use every right that a writer of a table needs; return the names of the rights.

    Args:
        location: the location of a table, which need not exist.
        folder: a new folder for trials on the table's store.

    Raises:
        RightsMissing: the store refuses at least one right.
        Unsupported: the store does not support conditional requests.
        TrialStopped: the command ends.
        HudiError: the store cannot be used at all.
    """
    trials = _Trials(folder)
    trials.run()
    if trials.refusals:
        raise RightsMissing(canonical_url(location.url), trials.refusals, trials.leftovers)
    check_conditional_puts(open_storage(folder.location))
    return (*trials.granted, CONDITIONAL)


class _Trials:
    """Trials in an empty folder.

    Attributes:
        granted: the names of the rights that were used.
        refusals: the error of each refused right.
        leftovers: the paths of objects that could not be deleted.
    """

    def __init__(self, folder: TrialFolder) -> None:
        self._folder, self._storage = folder, open_storage(folder.location)
        self.granted: list[str] = []
        self.refusals: dict[str, HudiError] = {}
        self.leftovers: tuple[str, ...] = ()

    def run(self) -> None:
        """Try all rights. Without the right to delete, nothing is written."""
        storage = self._storage
        self._try(LIST, lambda: storage.list_folder(""))
        if self._try(DELETE, lambda: storage.delete(["absent"])):
            self._try(CREATE, lambda: storage.create("trial", b"trial"))
        # If an object is absent, a store answers so only to those who may read it.
        self._try(READ, lambda: storage.read("trial"))
        if CREATE in self.granted and READ in self.granted:
            self._try(PUBLISH, lambda: storage.publish("trial", "copy"))
        if CREATE in self.granted:
            self._delete()

    def _try(self, right: str, request: Callable[[], object]) -> bool:
        """Make a request that needs a right; return whether it is granted.

        Raises:
            TrialStopped: the command ends.
            HudiError: the request failed for another reason than a missing right.
        """
        self._folder.check()
        try:
            with suppress(NotFound):
                request()
        except AccessDenied as refusal:
            self.refusals.setdefault(right, refusal)
            return False
        self.granted.append(right)
        return True

    def _delete(self) -> None:
        """Delete what was written, because some stores allow a deletion of what does not exist."""
        written = ["trial", "copy"] if PUBLISH in self.granted else ["trial"]
        try:
            self._storage.delete(written)
        except AccessDenied as refusal:
            self.refusals.setdefault(DELETE, refusal)
            root = self._storage.location.url
            self.leftovers = tuple(f"{root}/{name}" for name in written)


def _remedy(url: str) -> str:
    role = _ROLES.get(url.partition(":")[0])
    allow = "allow these credentials to do this"
    return allow if role is None else f"{allow}, for example with {role}"
