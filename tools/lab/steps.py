# SPDX-License-Identifier: GPL-2.0
"""Steps of the set-up: what each makes, what it needs, running them side by side."""

import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures import Future
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path

from . import cache
from . import run as commands


@dataclass(frozen=True)
class Work:
    """What a step's function gets: the folder to fill, facts to record, its log."""

    folder: Path
    facts: dict[str, object]
    log: Path


@dataclass(frozen=True)
class Step:
    """One artefact and how it is made.

    `target` is asked for only when everything in `needs` is complete, so a
    key may depend on what those artefacts recorded about themselves.
    """

    name: str
    title: str
    target: Callable[[], cache.Artifact]
    make: Callable[[Work], None]
    needs: tuple[str, ...] = ()
    resume: bool = False


class Progress:
    """One line per event, with the time since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self.said = False

    def say(self, text: str) -> None:
        elapsed = time.monotonic() - self._start
        with self._lock:
            self.said = True
            print(f"[{elapsed:5.0f}s] {text}", flush=True)


def closure(table: dict[str, Step], wanted: Iterable[str]) -> list[str]:
    """`wanted` and everything needed for it, needs first."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"steps need each other: {' -> '.join((*path, name))}")
        if name in order:
            return
        for need in table[name].needs:
            visit(need, (*path, name))
        order.append(name)

    for name in wanted:
        visit(name, ())
    return order


def log_path(name: str) -> Path:
    folder = cache.root() / "log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def run_one(step: Step, progress: Progress) -> None:
    """Makes the artefact of `step` unless it is there already."""
    target = step.target()
    if target.is_complete():
        target.touch()
        return
    with cache.lock(f"{target.name}-{target.key}"):
        if target.is_complete():
            return
        progress.say(f"{step.name}: {step.title}")
        started = time.monotonic()
        log = log_path(step.name)
        log.write_text("")
        with cache.building(target, step.resume) as (folder, facts):
            step.make(Work(folder, facts, log))
        progress.say(f"{step.name}: done in {time.monotonic() - started:.0f} s")


def run(table: dict[str, Step], wanted: Iterable[str], progress: Progress) -> bool:
    """Runs the steps that `wanted` needs, each as soon as its own needs are met.

    After a failure nothing new is started; what runs is waited for. Says
    which step failed and shows the end of its log; returns whether all is well.
    """
    names = closure(table, wanted)
    done: set[str] = set()
    running: dict[Future[None], str] = {}
    failed: list[tuple[str, BaseException]] = []
    with ThreadPoolExecutor(max_workers=8) as pool:
        while len(done) < len(names):
            if not failed:
                for name in names:
                    if name not in done and name not in running.values() and done.issuperset(table[name].needs):
                        running[pool.submit(run_one, table[name], progress)] = name
            if not running:
                break
            try:
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
            except KeyboardInterrupt:
                commands.stop_all()
                raise
            for future in finished:
                name = running.pop(future)
                error = future.exception()
                if error is None:
                    done.add(name)
                else:
                    failed.append((name, error))
                    progress.say(f"{name}: FAILED: {error}")
    for name, _ in failed:
        log = log_path(name)
        if log.is_file():
            tail = log.read_text(errors="replace").splitlines()[-30:]
            print(f"--- the end of {log}:", *tail, sep="\n", file=sys.stderr, flush=True)
    return not failed
