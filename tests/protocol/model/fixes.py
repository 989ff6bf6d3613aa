"""The rules that keep the protocol safe, each of which a search can leave out."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Fixes:
    """Which rules the processes follow.

    Attributes:
        withdraw_on_take_over: a process that takes over an unreleased lock first deletes all
            prepared content.
        base_loaded_under_lock: a commit loads its base under the lock of its request.
        prepare_under_lock: content is prepared under the lock that it is published under.
        check_lease_after_prepare: the lease is checked once the content is prepared.
        check_lease_before_publish: the lease is checked before each attempt to publish.
        withdraw_before_release: a process that fails under the lock deletes prepared content before
            it releases the lock, and does not release a lease that has expired.
        rollback_withdraws_first: a rollback deletes the prepared content of its target before it
            deletes files.
        check_lease_before_withdrawal: a rollback checks the lease before it deletes the content
            that attempts at an instant have prepared.
        conditional_manifest: a manifest of the history is created, never replaced.
        attempt_identity: an attempt at a planned service writes its identity into the inflight
            instant, the names of its files and its prepared content.
        shared_file_groups: non-blocking writers choose the same file group for a bucket.
        first_file_is_log: a non-blocking writer begins a file group with a log.
    """

    withdraw_on_take_over: bool = True
    base_loaded_under_lock: bool = True
    prepare_under_lock: bool = True
    check_lease_after_prepare: bool = True
    check_lease_before_publish: bool = True
    withdraw_before_release: bool = True
    rollback_withdraws_first: bool = True
    check_lease_before_withdrawal: bool = True
    conditional_manifest: bool = True
    attempt_identity: bool = True
    shared_file_groups: bool = True
    first_file_is_log: bool = True

    def without(self, *names: str) -> Fixes:
        """Return the rules without the named ones."""
        return replace(self, **dict.fromkeys(names, False))


ALL = Fixes()
NAMES = tuple(field.name for field in fields(Fixes))
