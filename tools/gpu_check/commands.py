"""Runs programs within the time of a part and keeps what was run."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


class CommandError(Exception):
    """A program that did not do its work; the text says which, how it ended and its last lines."""


@dataclasses.dataclass
class Done:
    command: str
    status: int  # -1: stopped when its time was over
    output: str  # stdout and stderr
    seconds: float

    @property
    def ended(self) -> str:
        return "was stopped" if self.status == -1 else f"ended with status {self.status}"

    def last_lines(self, count: int = 5) -> str:
        return "\n".join(self.output.strip().splitlines()[-count:])

    def json_lines(self) -> list[dict[str, Any]]:
        """The JSON objects among the lines of the output."""
        found = []
        for line in self.output.splitlines():
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise CommandError(f"{self.command} printed a line that is no JSON ({error}): "
                                       f"{line[:100]}") from error
        return found

    def last_json(self) -> dict[str, Any]:
        found = self.json_lines()
        if not found:
            raise CommandError(f"{self.command} {self.ended} without a line of JSON: "
                               f"{self.last_lines() or '(it printed nothing)'}")
        return found[-1]


class Commands:
    def __init__(self, work: Path, seconds: float, environment: dict[str, str] | None = None,
                 python: str = "python3") -> None:
        self.work = work
        self.python = python
        self.environment = environment or {}  # of the engine's programs, not of Python's
        self.lines: list[str] = []  # the commands, as one would type them
        self._lock = threading.Lock()
        self._is_stopped = False
        self._deadline = time.monotonic() + seconds

    def seconds_left(self) -> float:
        return 0.0 if self._is_stopped else self._deadline - time.monotonic()

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> int:
        """The exit status; -1 when it was stopped. Never leaves the program behind."""
        end = time.monotonic() + seconds
        try:
            while True:
                left = min(end - time.monotonic(), self.seconds_left())
                try:
                    return process.wait(timeout=max(0.0, min(left, 0.2)))
                except subprocess.TimeoutExpired:
                    if left <= 0:
                        return -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def run(self, command: list[str], *, seconds: float = 1e9,
            environment: dict[str, str] | None = None, log: str = "") -> Done:
        """Runs in the work folder for at most `seconds`, and never beyond the part's time."""
        own = environment or {}
        typed = shlex.join(command)
        if own:
            typed = " ".join(f"{k}={shlex.quote(v)}" for k, v in own.items()) + " " + typed
        with self._lock:
            self.lines.append(typed)
            number = len(self.lines)
        libraries = {} if command[0] == self.python else self.environment
        limit = min(seconds, self.seconds_left())
        begin = time.monotonic()
        if limit <= 0:
            return Done(typed, -1, "not started: the part's time is used up", 0.0)
        name = log or Path(command[command[0] == self.python]).name
        path = self.work / f"{number:02}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.log"
        with open(path, "wb") as out:
            try:
                process = subprocess.Popen(
                    command, cwd=self.work, stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    env={**os.environ, **libraries, **own})
            except OSError as error:
                raise CommandError(f"{typed} cannot be started: {error}") from error
            status = self._wait(process, limit)
        return Done(typed, status, path.read_text(errors="replace"), time.monotonic() - begin)

    def must(self, command: list[str], **keywords: Any) -> Done:
        """run(), for programs without which a part cannot go on."""
        done = self.run(command, **keywords)
        if done.status != 0:
            raise CommandError(f"{done.command} {done.ended} after {done.seconds:.0f} s: "
                               f"{done.last_lines()}")
        return done

    def at_once(self, calls: list[dict[str, Any]], width: int) -> list[Done]:
        """Several runs (keywords of run()) beside each other, `width` at a time."""
        return [done for done, in self.chains_at_once([[call] for call in calls], width)]

    def chains_at_once(self, chains: list[list[dict[str, Any]]], width: int) -> list[list[Done]]:
        """As at_once(), for chains of runs that follow each other."""
        with ThreadPoolExecutor(width) as pool:
            try:
                return list(pool.map(lambda chain: [self.run(**call) for call in chain], chains))
            except BaseException:  # a signal, too: the pool would wait for all of them
                self._is_stopped = True
                raise
