"""Mutants of the feed of changes, and of the targets that changes are delivered to."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FEED = ("tests/unit/operations/test_change_feed.py",)
_SUBSCRIBE = ("tests/unit/streamer/test_subscribe.py",)

OF_SUBSCRIPTIONS = (
    Mutant(
        "lakemark/operations/change_feed.py",
        "        return [one for one in commits if one.requested_at < pending.requested_at]\n",
        "        return commits\n",
        "in version 6, a commit that completes after one that was requested later is never read",
        _FEED,
    ),
    Mutant(
        "lakemark/operations/change_feed.py",
        "        self._check_not_undone(position)\n",
        "",
        "changes of a commit that was rolled back remain in the target without an error",
        _FEED,
    ),
    Mutant(
        "lakemark/operations/change_feed.py",
        "        self._check_not_archived(position)\n",
        "",
        "the changes of archived commits are skipped without an error",
        _FEED,
    ),
    Mutant(
        "lakemark/read/cdc/deletes_first.py",
        "            waiting.add(batch.filter(pc.invert(is_delete)))\n",
        "            yield batch.filter(pc.invert(is_delete))\n",
        "a row that moves to another partition is deleted in a target that applies changes by key",
        _FEED,
    ),
    Mutant(
        "lakemark/read/cdc/change_format.py",
        "pc.if_else(after.is_valid(), after, before)",
        "after",
        "deletes of a table that logs both rows have no record key",
        _FEED,
    ),
    Mutant(
        "streamer/subscribe/file_target.py",
        "                os.ftruncate(self._file, self._size)\n",
        "                pass\n",
        "lines of a killed delivery remain behind shorter ones",
        _SUBSCRIBE,
    ),
    Mutant(
        "streamer/subscribe/file_target.py",
        "        self._cursor, self._size = cursor, size\n        return count\n",
        "        self._cursor = cursor\n        return count\n",
        "each commit overwrites the lines of the previous one",
        _SUBSCRIBE,
    ),
    Mutant(
        "streamer/subscribe/subscription.py",
        "            target.deliver((), cursor)\n",
        "",
        "a subscription that begins at the newest commit and is killed misses later commits",
        _SUBSCRIBE,
    ),
)
