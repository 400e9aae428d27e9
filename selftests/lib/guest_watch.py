# SPDX-License-Identifier: GPL-2.0
"""How long files read otherwise than they should, seen by looking often; inside the guest."""

from __future__ import annotations

import threading
import time
from typing import Any

_watches = {}


class Watch(threading.Thread):
    """Looks at files until ``stop``; notes when one begins and ends to read otherwise."""

    def __init__(self, paths: list[str], text: str, interval: float) -> None:
        super().__init__(daemon=True)
        self.paths, self.text, self.interval = paths, text, interval
        self.since: dict[str, float | None] = dict.fromkeys(paths)
        self.times: dict[str, list[float]] = {path: [] for path in paths}
        self.ended = threading.Event()

    def look(self) -> None:
        """Once at each file."""
        for path in self.paths:
            try:
                with open(path, encoding="ascii") as file:
                    good = file.read().strip() == self.text
            except OSError:
                good = False
            now = time.monotonic()
            since = self.since[path]
            if good and since is not None:
                self.times[path].append(now - since)
                self.since[path] = None
            elif not good and since is None:
                self.since[path] = now

    def run(self) -> None:
        while not self.ended.wait(self.interval):
            self.look()


def start(name: str, paths: list[str], text: str, interval: float) -> None:
    """Begin to look, every ``interval`` seconds."""
    _watches[name] = Watch(paths, text, interval)
    _watches[name].start()


def stop(name: str) -> list[Any]:
    """End; for each file, the seconds of each time that it read otherwise and came back."""
    watch = _watches.pop(name)
    watch.ended.set()
    watch.join()
    watch.look()
    return [watch.times[path] for path in watch.paths]
