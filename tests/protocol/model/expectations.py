"""For each rule, the scenarios in which a search finds what breaks without it."""

from __future__ import annotations

from tests.protocol.model import scenarios
from tests.protocol.model.search import Scenario

#: A safe scenario, and the rules without which it breaks. If it names several, each of them alone
#: keeps the scenario safe.
BROKEN: tuple[tuple[Scenario, tuple[str, ...]], ...] = (
    (scenarios.COMPACTION, ("withdraw_on_take_over",)),
    (scenarios.FIRST_WRITERS, ("withdraw_on_take_over",)),
    (scenarios.FIRST_WRITERS, ("prepare_under_lock",)),
    (scenarios.TWO_WRITERS, ("withdraw_before_release",)),
    (scenarios.ARCHIVED_CONFLICT, ("base_loaded_under_lock",)),
    (scenarios.TWO_ARCHIVERS, ("conditional_manifest",)),
    (scenarios.TWO_EXECUTORS, ("attempt_identity",)),
    (scenarios.ATTEMPT_UNDONE, ("check_lease_before_withdrawal",)),
    (
        scenarios.FIRST_WRITERS,
        ("check_lease_after_prepare", "check_lease_before_publish"),
    ),
    (scenarios.DEAD_WRITER, ("withdraw_on_take_over", "rollback_withdraws_first")),
    (scenarios.SHARED_BUCKET, ("shared_file_groups",)),
    (scenarios.SHARED_BUCKET, ("first_file_is_log",)),
)

#: The scenarios in which nothing breaks while all rules apply.
SAFE: tuple[Scenario, ...] = (
    scenarios.FIRST_WRITERS,
    scenarios.TWO_WRITERS,
    scenarios.COPY_WRITERS,
    scenarios.RENEWING,
    scenarios.TRYING_AGAIN,
    scenarios.DEAD_WRITER,
    scenarios.COMPACTION,
    scenarios.TWO_EXECUTORS,
    scenarios.ATTEMPT_UNDONE,
    scenarios.THREE,
    scenarios.ARCHIVED_CONFLICT,
    scenarios.TWO_ARCHIVERS,
    scenarios.SHARED_BUCKET,
    scenarios.SHARED_WITH_DEAD,
    scenarios.SHARED_COMPACTION,
)
