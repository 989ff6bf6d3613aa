"""A scheduler that runs one task at a time, on a clock that advances when all of them wait.

A task runs until it calls the scheduler (``step``, ``sleep``) or waits for something. The scheduler
then draws the task that runs next. With the same seed it draws the same tasks again.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from typing import ClassVar

from tests.protocol.virtual_time import VirtualTime

#: A history of more steps than this is stuck.
MOST_STEPS = 60_000


class Killed(BaseException):
    """The process of this task was killed."""


class Stuck(AssertionError):
    """No task can run, or the tasks run for ever."""


@dataclass(eq=False)
class Process:
    """The tasks of one process, which die and pause together.

    Attributes:
        name: its name in the trace.
        is_killed: whether it was killed.
        paused_until_ms: when its tasks resume.
        cut_off_until_ms: when its requests reach the store again.
    """

    name: str
    is_killed: bool = False
    paused_until_ms: int = 0
    cut_off_until_ms: int = 0


@dataclass(eq=False)
class _Task:
    process: Process
    run: Callable[[], None]
    due_ms: int = 0
    is_ready: Callable[[], bool] | None = None
    is_begun: bool = False
    gate: threading.Lock = field(default_factory=threading.Lock)

    def may_run(self, now_ms: int) -> bool:
        if self.process.is_killed:
            return True
        if self.process.paused_until_ms > now_ms:
            return False
        return self.due_ms <= now_ms or (self.is_ready is not None and self.is_ready())

    def may_run_at(self) -> int:
        """Return when the clock lets the task run; another task may make it ready earlier."""
        if self.is_ready is not None and self.is_ready():
            return self.process.paused_until_ms
        return max(self.due_ms, self.process.paused_until_ms)


#: When a task is due that waits only for other tasks.
_NEVER = 1 << 62


class Scheduler:
    """Runs tasks in threads, one at a time.

    Attributes:
        time: the clock of all tasks.
        draw: the source of the random choices of the schedule.
        steps: how many steps there were.
    """

    def __init__(self, seed: str, stickiness: float = 0.9) -> None:
        self.time = SimulatedTime(self)
        self.draw = random.Random(seed)
        self.steps = 0
        self._stickiness = stickiness
        self._tasks: list[_Task] = []
        self._current: _Task | None = None
        self._later: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = count()
        self._done = threading.Lock()
        self._failure: BaseException | None = None

    @property
    def process(self) -> Process | None:
        """The process that is running; None before and after ``run``."""
        return self._current.process if self._current else None

    @property
    def task(self) -> object:
        """The task that is running."""
        return self._current

    @property
    def has_failed(self) -> bool:
        """Whether a task has raised an error, which ``run`` will raise."""
        return self._failure is not None

    def start(self, process: Process, run: Callable[[], None]) -> None:
        """Add a task; it begins when it is drawn."""
        self._tasks.append(_Task(process, run))

    def at(self, ms: int, call: Callable[[], object]) -> None:
        """Call a function when the clock reaches a time, whichever task runs then."""
        heapq.heappush(self._later, (ms, next(self._numbers), call))

    def run(self) -> None:
        """Run all tasks to their end.

        Raises:
            BaseException: the error that a task raised; the other tasks are killed.
        """
        self._done.acquire()
        self._hand_on()
        self._done.acquire()
        self._done.release()
        if self._failure is not None:
            raise self._failure

    def step(self) -> None:
        """Let another task run, if one is drawn.

        Raises:
            Killed: the process was killed meanwhile.
        """
        self._wait(0, None)

    def sleep(self, ms: int) -> None:
        """Wait for a time; other tasks may run for longer.

        Raises:
            Killed: as ``step``.
        """
        self._wait(self.time.passed_ms + ms, None)

    def wait_for(self, is_ready: Callable[[], bool], ms: int | None = None) -> None:
        """Wait until another task makes a condition true, or for a time.

        Raises:
            Killed: as ``step``.
        """
        self._wait(_NEVER if ms is None else self.time.passed_ms + ms, is_ready)

    def move_clock_to(self, ms: int) -> None:
        """Advance the clock, and make all calls that are due until then."""
        while self._later and self._later[0][0] <= ms:
            due_ms, _, call = heapq.heappop(self._later)
            self.time.passed_ms = max(self.time.passed_ms, due_ms)
            call()
        self.time.passed_ms = max(self.time.passed_ms, ms)

    def _wait(self, due_ms: int, is_ready: Callable[[], bool] | None) -> None:
        task = self._current
        assert task is not None
        self._check_alive(task)
        task.due_ms, task.is_ready = due_ms, is_ready
        chosen = self._choose()
        if chosen is not task:
            self._pass_to(chosen)
            task.gate.acquire()
        task.due_ms, task.is_ready = 0, None
        self._check_alive(task)

    def _check_alive(self, task: _Task) -> None:
        if task.process.is_killed:
            raise Killed(task.process.name)

    def _pass_to(self, task: _Task) -> None:
        self._current = task
        if not task.is_begun:
            self._give_thread(task)
        task.gate.release()

    def _give_thread(self, task: _Task) -> None:
        worker = _Worker.idle.pop() if _Worker.idle else _Worker()
        task.gate, task.is_begun = worker.gate, True

        def work() -> Callable[[], None]:
            self._run(task)
            return self._hand_on

        worker.work = work

    def _hand_on(self) -> None:
        """Start the next task after one has ended, or the first one."""
        self._current = None
        while self._later and not self._tasks:
            self.move_clock_to(self._later[0][0])
        if self._tasks:
            self._pass_to(self._choose())
        else:
            self._done.release()

    def _choose(self) -> _Task:
        self.steps += 1
        if self.steps > MOST_STEPS:
            self._fail(Stuck(f"no end after {MOST_STEPS} steps"))
        self.move_clock_to(self.time.passed_ms)
        while not (ready := [t for t in self._tasks if t.may_run(self.time.passed_ms)]):
            self._move_to_next_event()
        current = self._current
        if current in ready and (len(ready) == 1 or self.draw.random() < self._stickiness):
            assert current is not None
            return current
        return ready[0] if len(ready) == 1 else self.draw.choice(ready)

    def _move_to_next_event(self) -> None:
        times = [task.may_run_at() for task in self._tasks]
        soonest = min([*times, self._later[0][0]] if self._later else times)
        if soonest == _NEVER:
            self._fail(Stuck("every task waits for another one"))
        else:
            self.move_clock_to(soonest)

    def _run(self, task: _Task) -> None:
        try:
            self._check_alive(task)
            task.run()
        except Killed:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            self._tasks.remove(task)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        for task in self._tasks:
            task.process.is_killed = True


class _Worker:
    """A thread that runs many tasks, because starting a thread takes longer than most tasks."""

    idle: ClassVar[list[_Worker]] = []

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.work: Callable[[], Callable[[], None]] | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.gate.acquire()
            assert self.work is not None
            hand_on = self.work()
            self.work = None
            self.idle.append(self)  # this thread may run the next task
            hand_on()


class SimulatedTime(VirtualTime):
    """A clock on which a task that waits lets other tasks run."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self.passed_ms = 0
        self._scheduler = scheduler
        self._began_ms = VirtualTime().now_ms()

    def now_ms(self) -> int:
        """Return the time of every process."""
        return self._began_ms + self.passed_ms

    def monotonic(self) -> float:
        """Like ``time.monotonic``."""
        return self.passed_ms / 1000

    def time_ns(self) -> int:
        """Like ``time.time_ns``."""
        return self.now_ms() * 1_000_000

    def sleep(self, seconds: float) -> None:
        """See ``Scheduler.sleep``; outside of a run only advance the clock."""
        ms = max(1, ceil(1000 * seconds))
        if self._scheduler.process is None:
            self.passed_ms += ms
        else:
            self._scheduler.sleep(ms)
