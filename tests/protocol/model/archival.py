"""Archival: completed instants move from the active timeline into the history."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.model.commit import NOTHING
from tests.protocol.model.state import WRITES, Action, History, Instant, State
from tests.protocol.model.step import Step


def plan_archival(step: Step) -> Iterator[State]:
    """Under the lock, choose the oldest instants, and read the newest manifest.

    Instants that a pending write still checks for conflicts are not archived.
    """
    chosen = _chosen(step)
    if not chosen or step.state.pending(Action.RESTORE):
        yield step.go("looked in vain")
        return
    newest = max((number for number, _ in step.state.history.manifests), default=0)
    yield step.next(base=frozenset(i.name for i in chosen), tries=newest)


def write_history(step: Step) -> Iterator[State]:
    """Write a data file under a new name; no manifest lists it yet."""
    process, state = step.process, step.with_clock()
    known = _named(state.history, process.tries)
    rows = frozenset(i for i in state.timeline if i.name in process.base and i not in known)
    history = state.history._replace(files=state.history.files | {(state.clock, rows)})
    yield step.next(state._replace(history=history), attempt=state.clock)


def create_manifest(step: Step) -> Iterator[State]:
    """Create the next manifest; if there is one already, the archival fails."""
    process, history = step.process, step.state.history
    manifests, number = dict(history.manifests), step.process.tries + 1
    if number in manifests and step.rules.fixes.conditional_manifest:
        yield step.fail()
        return
    manifests[number] = manifests.get(process.tries, frozenset()) | {process.attempt}
    history = history._replace(manifests=tuple(sorted(manifests.items())))
    yield step.next(step.state._replace(history=history))


def move_version(step: Step) -> Iterator[State]:
    """Point readers to the new manifest, unless they use a later one."""
    history, number = step.state.history, step.process.tries + 1
    if history.version > number:
        yield step.fail()
    else:
        yield step.next(step.state._replace(history=history._replace(version=number)))


def delete_archived(step: Step) -> Iterator[State]:
    """Delete the archived instants from the active timeline."""
    yield step.next(step.state.without_instants(step.process.base), **NOTHING)


def _chosen(step: Step) -> list[Instant]:
    commits = step.state.completed(*WRITES)
    oldest = commits[: max(0, len(commits) - step.rules.kept)]
    pending = step.state.pending(*WRITES)
    if pending:
        older = [i.name for i in commits if i.name < pending[0].name]
        since = [i.name for i in commits if i.completed_at > pending[0].name]
        end = min([older[-1] if older else pending[0].name, *since])
        oldest = [i for i in oldest if i.name < end]
    if not oldest:
        return []
    last = oldest[-1].name
    return [*oldest, *(i for i in step.state.completed(Action.ROLLBACK) if i.name < last)]


def _named(history: History, manifest: int) -> frozenset[Instant]:
    named = dict(history.manifests).get(manifest, frozenset())
    return frozenset(i for number, some in history.files if number in named for i in some)
