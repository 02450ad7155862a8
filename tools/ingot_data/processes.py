"""Units spread over processes.

Each process has a pipe of its own, whose other end only the main process holds, and the main
process has no second thread: a process that dies, wherever it was, closes its pipe and is noticed;
a signal, wherever the main process was, ends it and all others. (concurrent.futures promises
neither: its manager thread can wait for a dead process's half-written result, and an interrupt
while it starts processes leaves some that nobody ends.)
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from ingot_data.errors import DataError
from ingot_data.inputs import Unit
from ingot_data.worker import UnitResult, WorkerOptions, process_unit

UNITS_OF_A_PROCESS = 2  # The one it works at and the next, so that it does not wait for us.
UNITS_AHEAD = 3  # For each process: begun, or finished and waiting for their turn.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_units(
    units: Sequence[Unit], worker: WorkerOptions, jobs: int
) -> Generator[tuple[Unit, UnitResult], None, None]:
    """Results in the order of the units, whatever the number of processes."""
    jobs = min(jobs, len(units))
    if jobs <= 1:
        for unit in units:
            yield unit, process_unit(unit, worker)
        return
    pool = _Pool(worker)
    try:
        for _ in range(jobs):
            pool.start_process()
        yield from pool.run(units)
    finally:
        pool.end()


class _Pool:
    """Processes with their pipes, and which units each has."""

    def __init__(self, worker: WorkerOptions) -> None:
        self._worker = worker
        self._processes: dict[Connection, SpawnProcess] = {}
        self._begun: dict[Connection, deque[int]] = {}  # Indices of units, oldest first.

    def start_process(self) -> None:
        # A new interpreter: a fork of a process with threads may inherit a held lock.
        context = multiprocessing.get_context("spawn")
        with _signals_held():
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._worker), daemon=True)
            process.start()
            theirs.close()
            self._processes[ours] = process
            self._begun[ours] = deque()

    def run(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, UnitResult]]:
        finished: dict[int, UnitResult] = {}
        next_index = 0
        for due, unit in enumerate(units):
            while due not in finished:
                limit = min(len(units), due + UNITS_AHEAD * len(self._processes))
                while next_index < limit and (free := self._free_process()) is not None:
                    self._send(free, next_index, units[next_index])
                    next_index += 1
                for connection in wait([c for c, begun in self._begun.items() if begun]):
                    assert isinstance(connection, Connection)
                    index = self._begun[connection][0]
                    finished[index] = self._receive(connection, units[index])
                    self._begun[connection].popleft()
            yield unit, finished.pop(due)

    def _free_process(self) -> Connection | None:
        connection = min(self._begun, key=lambda c: len(self._begun[c]))
        return connection if len(self._begun[connection]) < UNITS_OF_A_PROCESS else None

    def end(self) -> None:
        with _signals_held():
            for process in self._processes.values():
                process.terminate()
            for connection, process in self._processes.items():
                process.join()
                connection.close()

    def _send(self, connection: Connection, index: int, unit: Unit) -> None:
        try:
            connection.send(unit)
        except OSError as error:
            raise _dead_process(unit) from error
        self._begun[connection].append(index)

    def _receive(self, connection: Connection, unit: Unit) -> UnitResult:
        try:
            result = connection.recv()
        except (EOFError, OSError) as error:
            raise _dead_process(unit) from error
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, UnitResult)
        return result


def _dead_process(unit: Unit) -> DataError:
    return DataError(
        f"a tokenizing process died at {unit.file.path} (bytes or groups {unit.start}..{unit.end}); "
        "if memory ran out, give fewer --jobs or smaller documents"
    )


@contextmanager
def _signals_held() -> Iterator[None]:
    """Signals that come meanwhile act at the end of the block, so that it is done as a whole."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, worker: WorkerOptions) -> None:
    """The main function of a process: ends with the main process, however that one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the main process decides.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    threading.Thread(target=_follow_parent, daemon=True).start()
    while True:
        try:
            unit = connection.recv()
        except EOFError:
            return
        try:
            result: UnitResult | Exception = process_unit(unit, worker)
        except Exception as error:
            error.add_note(traceback.format_exc())
            result = error
        connection.send(result)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
