# SPDX-License-Identifier: GPL-2.0
"""How long files read otherwise than they should, seen by looking often; inside the guest."""

import threading
import time

_watches = {}


class Watch(threading.Thread):
    """Looks at files until ``stop``; notes when one begins and ends to read otherwise."""

    def __init__(self, paths, text, interval):
        super().__init__(daemon=True)
        self.paths, self.text, self.interval = paths, text, interval
        self.since = {path: None for path in paths}
        self.times = {path: [] for path in paths}
        self.ended = threading.Event()

    def look(self):
        """Once at each file."""
        for path in self.paths:
            try:
                with open(path, encoding="ascii") as file:
                    good = file.read().strip() == self.text
            except OSError:
                good = False
            now = time.monotonic()
            if good and self.since[path] is not None:
                self.times[path].append(now - self.since[path])
                self.since[path] = None
            elif not good and self.since[path] is None:
                self.since[path] = now

    def run(self):
        while not self.ended.wait(self.interval):
            self.look()


def start(name, paths, text, interval):
    """Begin to look, every ``interval`` seconds."""
    _watches[name] = Watch(paths, text, interval)
    _watches[name].start()


def stop(name):
    """End; for each file, the seconds of each time that it read otherwise and came back."""
    watch = _watches.pop(name)
    watch.ended.set()
    watch.join()
    watch.look()
    return [watch.times[path] for path in watch.paths]
