"""Mutants of the lock, of prepared content, and of the storage of both."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LOCK = "lakemark/timeline/locks/table_lock.py"
_OPEN_LOCK = "lakemark/timeline/locks/open_lock.py"
_LOCK_RECORD = "lakemark/timeline/locks/lock_provider.py"
_STORAGE_LOCK = "lakemark/timeline/locks/storage_lock.py"
_DISK = "lakemark/storage/disk.py"
_LOCAL = "lakemark/storage/local_storage.py"
_OBJECTS = "lakemark/storage/object_storage.py"

_OF_LOCKS = ("tests/contract/test_lock.py", "tests/property/test_lock_interleavings.py")
_TAKE_OVERS = ("tests/recovery/test_lost_lease.py",)
_OF_STORAGE = ("tests/contract/test_storage.py",)

_LOCKS = (
    Mutant(
        _LOCK,
        "        if claim.taken_over:\n",
        "        if False:\n",
        "a writer that lost its lease publishes after others have gone on: its rows are lost",
        _TAKE_OVERS,
    ),
    Mutant(
        _OPEN_LOCK,
        "# model: take over\n    lease.check()\n",
        "\n",
        "a writer that is slow to take a lock over removes what the next holder prepared",
        ("tests/unit/transaction/test_publication.py",),
    ),
    Mutant(
        _OPEN_LOCK,
        "    lease.check_time()\n\n",
        "\n",
        "a take-over that lasted longer than the lease counts as one",
        ("tests/unit/transaction/test_publication.py",),
    ),
    Mutant(
        _LOCK,
        "replace_record(claim, claim.released_unused())\n",
        "replace_record(claim, replace(claim.record, expired=True))\n",
        "a take-over that failed looks like a lock that was released: nothing is withdrawn",
        _TAKE_OVERS,
    ),
    Mutant(
        _LOCK_RECORD,
        "return replace(self.record, valid_until_ms=0, expired=not self.taken_over)",
        "return replace(self.record, valid_until_ms=0, expired=True)",
        "after a take-over that failed the next holder withdraws nothing",
        _TAKE_OVERS,
    ),
    Mutant(
        _STORAGE_LOCK,
        "taken_over=not seen.record.expired)",
        "taken_over=False)",
        "on an object store a lock is taken over without a withdrawal",
        _TAKE_OVERS,
    ),
    Mutant(
        _STORAGE_LOCK,
        "bool(highest) and not seen[highest].expired)",
        "False)",
        "on a local disk a lock is taken over without a withdrawal",
        _TAKE_OVERS,
    ),
    Mutant(
        "lakemark/timeline/prepared.py",
        'f".hoodie/metadata/{PREPARED_FOLDER}"',
        '".hoodie/.none"',
        "a commit of the metadata table is published after its lock was taken over",
        ("tests/unit/transaction/test_publication.py",),
    ),
    Mutant(
        _LOCK,
        "            if self._is_long() and not self._provider.is_current(claim):",
        "            if False:",
        "a lock that Apache Hudi has taken over is believed to be held",
        _OF_LOCKS + _TAKE_OVERS,
    ),
    Mutant(
        _LOCK,
        "            if not self._is_long():\n",
        "            if False:\n",
        "a look at the lock that lasted too long passes",
        ("tests/contract/test_lock_losses.py",),
    ),
    Mutant(
        _LOCK,
        "            if not self._is_long():  # perhaps because the answer took long\n",
        "            if False:\n",
        "the step after a look at the lock has next to no time left",
        _OF_LOCKS,
    ),
    Mutant(
        _LOCK,
        "> record.valid_until_ms + CLOCK_DRIFT_MS",
        "> record.valid_until_ms",
        "a writer whose clock is ahead takes a lock over that is held",
        _OF_LOCKS,
    ),
    Mutant(
        _LOCK,
        "            lease.renew()\n",
        "            pass\n",
        "work under the lock that lasts longer than a lease never ends",
        _OF_LOCKS,
    ),
    Mutant(
        _STORAGE_LOCK,
        "        if overtaken or not all(map(is_free, others.values())):\n",
        "        if False:\n",
        "two processes hold the lock of a table on a local disk",
        _OF_LOCKS,
    ),
    Mutant(
        _STORAGE_LOCK,
        "self._storage.replace(LOCK_PATH, record.to_bytes(), claim.version)",
        "self._storage.replace(LOCK_PATH, record.to_bytes(), self._read().version)",
        "two writers hold the lock of a table on an object store",
        _OF_LOCKS,
    ),
)

_WRITES = (
    Mutant(
        _DISK,
        "    while rest:\n",
        "    if rest:\n",
        "a file of which the system wrote a part appears as a whole one",
        ("tests/unit/storage/test_local_storage.py",),
    ),
    Mutant(
        _LOCAL,
        "            os.replace(staging, full_path)\n",
        "            with open(full_path, 'wb') as file:\n                file.write(data)\n",
        "a reader finds half of a file that is being replaced",
        ("tests/unit/storage/test_local_storage.py", *_OF_STORAGE),
    ),
    Mutant(
        _LOCAL,
        "partial(link, staged.enter_context(file), full_path)",
        "partial(os.replace, staged.enter_context(file), full_path)",
        "on a local disk two writers create one file: the later replaces the other's",
        _OF_STORAGE,
    ),
    Mutant(
        _LOCAL,
        "                link(source, full_path)\n",
        "                os.replace(source, full_path)\n",
        "on a local disk a completed instant is replaced by another",
        _OF_STORAGE,
    ),
    Mutant(
        _OBJECTS,
        '                self._put(path, data, "create")\n',
        '                self._put(path, data, "overwrite")\n',
        "on an object store two writers create one file: the later replaces the other's",
        _OF_STORAGE,
    ),
    Mutant(
        _OBJECTS,
        "            return self._put(path, data, expected)\n",
        '            return self._put(path, data, "overwrite")\n',
        "on an object store a version is replaced that was not read",
        _OF_STORAGE,
    ),
    Mutant(
        _OBJECTS,
        "overwrite=not conditional)",
        "overwrite=True)",
        "on GCS and Azure a completed instant is replaced by another",
        _OF_STORAGE,
    ),
    Mutant(
        _OBJECTS,
        "                    if self.read(path) != data:\n"
        "                        raise _content_mismatch(path) from None\n"
        "                    return\n",
        "                    return\n",
        "a file that another writer created is taken for our own",
        ("tests/unit/storage/test_object_storage.py", *_OF_STORAGE),
    ),
    Mutant(
        _OBJECTS,
        "            if self.head(path) is None:\n",
        "            if False:\n",
        "an instant that was rolled back is reported as one that may be published",
        _OF_STORAGE,
    ),
)

OF_STORAGE = (*_LOCKS, *_WRITES)
