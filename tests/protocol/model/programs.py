"""The programs of the processes: the order of their actions, and the programs after a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.protocol.model import archival, commit, compaction, lock, rollback
from tests.protocol.model.fixes import Fixes
from tests.protocol.model.state import Process, State
from tests.protocol.model.step import Perform, Step

#: The actions of a process, by the names in schedules and in comments of the code.
ACTIONS: Mapping[str, Perform] = {
    "acquire": lock.acquire,
    "take over": lock.take_over,
    "withdraw all prepared": lock.withdraw_prepared,
    "check lease": lock.check_lease,
    "check time of lease": lock.check_time,
    "release": lock.release,
    "withdraw on failure": lock.withdraw_on_failure,
    "release on failure": lock.release_on_failure,
    "load base": commit.load_base,
    "request commit": commit.request,
    "start commit": commit.start,
    "check begun": commit.check_begun,
    "cancel": commit.cancel,
    "write files": commit.write_files,
    "check commit": commit.check_commit,
    "prepare": commit.prepare,
    "generate completion time": commit.generate_time,
    "publish": commit.publish,
    "drop prepared": commit.drop_prepared,
    "retry": commit.retry,
    "find dead": rollback.find_dead,
    "find dead again": rollback.find_again,
    "withdraw": rollback.withdraw,
    "judge own": rollback.judge_own,
    "plan rollback": rollback.plan_rollback,
    "request rollback": rollback.request_rollback,
    "start rollback": rollback.start_rollback,
    "list files": rollback.list_files,
    "delete files": rollback.delete_files,
    "prepare rollback": rollback.prepare_rollback,
    "withdraw target": rollback.withdraw_target,
    "publish rollback": rollback.publish_rollback,
    "forget": rollback.forget,
    "plan compaction": compaction.plan_compaction,
    "request compaction": compaction.request_compaction,
    "find plan": compaction.find_plan,
    "clear attempts": compaction.clear_attempts,
    "resume": compaction.resume,
    "check taken up": compaction.check_taken_up,
    "rewrite": compaction.rewrite,
    "choose attempt": compaction.choose_attempt,
    "stop heartbeat": compaction.stop_heartbeat,
    "plan archival": archival.plan_archival,
    "write history": archival.write_history,
    "create manifest": archival.create_manifest,
    "move version": archival.move_version,
    "delete archived": archival.delete_archived,
}

_ACQUIRE = ("acquire", "take over", "withdraw all prepared")

_FAIL = ("withdraw on failure", "release on failure")

_ROLL_BACK = (
    *("plan rollback", "check lease", "request rollback", "start rollback"),
    *("list files", "check lease", "delete files"),
    *("prepare rollback", "check time of lease", "withdraw target"),
    *("generate completion time", "check lease", "publish rollback", "forget", "release"),
)


def programs(fixes: Fixes) -> dict[str, tuple[str, ...]]:
    """Return every program by its name, under these rules."""
    return {
        "commit": (*_begin(fixes), "write files", *_publish(fixes)),
        "commit failed": (*_FAIL, "abandon"),
        "cancel": ("cancel", "release", "retry"),
        "found committed": ("release", "done"),
        "refused": ("release", "retry"),
        "abandon": (*_ACQUIRE, "withdraw", "judge own", *_ROLL_BACK, "retry"),
        "abandon failed": (*_FAIL, "retry"),
        "late files": ("list files", "check lease", "delete files", "release", "retry"),
        "late files failed": (*_FAIL, "retry"),
        "undone": ("release", "retry"),
        "recover": ("find dead", *_ACQUIRE, "find dead again", "withdraw", *_ROLL_BACK, "recover"),
        "recover failed": (*_FAIL, "done"),
        "recovered": ("done",),
        "looked in vain": ("release", "done"),
        "compact": (
            *(*_ACQUIRE, "plan compaction", "check lease", "request compaction", "release"),
            "execute",
        ),
        "compact failed": (*_FAIL, "done"),
        "execute": (
            "find plan",
            *_ACQUIRE,
            "clear attempts",
            "check lease",
            "resume",
            "check taken up",
            "release",
            "rewrite",
            *_publish(fixes),
        ),
        "execute failed": (*_FAIL, "stop heartbeat", "done"),
        "stop heartbeat": ("stop heartbeat", "done"),
        "undo attempt": (*_ACQUIRE, "choose attempt", "withdraw", *_ROLL_BACK, "done"),
        "archive": (
            *(*_ACQUIRE, "plan archival", "write history"),
            *("check lease", "create manifest", "move version"),
            *("check lease", "delete archived", "release", "done"),
        ),
        "archive failed": (*_FAIL, "done"),
        "undo attempt failed": (*_FAIL, "done"),
    }


def _begin(fixes: Fixes) -> tuple[str, ...]:
    created = ("request commit", "start commit", "check begun", "release")
    if fixes.base_loaded_under_lock:
        return (*_ACQUIRE, "load base", *created)
    return ("load base", *_ACQUIRE, *created)


def _publish(fixes: Fixes) -> tuple[str, ...]:
    check_prepared = ("check time of lease",) if fixes.check_lease_after_prepare else ()
    check = ("check lease",) if fixes.check_lease_before_publish else ()
    publish = ("generate completion time", *check, "publish", "release", "drop prepared", "done")
    if fixes.prepare_under_lock:
        return (*_ACQUIRE, "check commit", "prepare", *check_prepared, *publish)
    return ("prepare", *_ACQUIRE, "check commit", *publish)


#: Programs in which a process ends.
FINAL = (
    "done",
    "fenced without a reason",
    "cannot read its files",
    "conflict of a non-blocking writer",
)


def successors(step: Step, known: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, State]]:
    """Yield the next action of a process with each state that may follow."""
    process = step.process
    if process.program in FINAL:
        return
    action = known[process.program][process.step]
    for state in ACTIONS[action](step):
        yield action, _at_next_action(state, step.number, known)


def _at_next_action(state: State, number: int, known: Mapping[str, tuple[str, ...]]) -> State:
    """Where a step names another program, continue there, until the process is at an action."""
    process = state.processes[number]
    while process.program not in FINAL or process.queue:
        if process.program == "done":
            process = _begun(process)
            continue
        target = known[process.program][process.step]
        if target in ACTIONS:
            break
        process = process._replace(program=target, step=0)
    return state.with_process(number, _begun(process) if process.program == "done" else process)


def _begun(process: Process) -> Process:
    """Return the process at its next program or at its end, with empty variables."""
    fresh = Process("done", bucket=process.bucket, batch=process.batch)
    if process.queue:
        return fresh._replace(program=process.queue[0], queue=process.queue[1:])
    return fresh
