# SPDX-License-Identifier: GPL-2.0
"""For `lab screens`: times of requests, as the kernels of a client and of its server count them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

SECONDS = 2
# How often the file is looked at that starts the counting, in seconds.
LOOK_SECONDS = 0.02
DISK, NUMBER = "nvme0n1", 0
# By kind of request the requests, and by stage the shortest and the longest time in us. `remote` of the client is more
# than `whole` of the server by the time of the network.
CLIENT = {"read": (48_210, {"wait": (2, 40), "remote": (82, 1900), "whole": (84, 1940)}),
          "write": (17_404, {"wait": (3, 60), "remote": (35, 2600), "whole": (38, 2660)}),
          "other": (212, {"wait": (2, 9), "remote": (20, 310), "whole": (22, 319)})}
SERVER = {"read": (48_210, {"queue": (3, 90), "disk": (61, 1700), "response": (2, 30), "whole": (66, 1820)}),
          "write": (17_404, {"queue": (4, 120), "disk": (14, 2300), "response": (2, 31), "whole": (20, 2451)}),
          "other": (212, {"queue": (3, 20), "disk": (5, 240), "response": (1, 8), "whole": (9, 268)})}
End = Mapping[str, tuple[int, Mapping[str, tuple[int, int]]]]


def bucket(ns: int) -> int:
    """The least time of the bucket of a time of at least 1,024 ns, as proto/latency.rs has it."""
    shift = ns.bit_length() - 3
    return ns >> shift << shift


def times(requests: int, shortest: int, longest: int) -> list[int]:
    """Times in ns: most of them short, few of them long."""
    steps = [number / (requests - 1) for number in range(requests)]
    return [round((shortest * (1 + 0.4 * step) + (longest - 1.4 * shortest) * step ** 300) * 1000) for step in steps]


def histogram(found: Sequence[int]) -> str:
    """A file of the kernel."""
    buckets = sorted(Counter(bucket(max(ns, 1024)) for ns in found).items())
    return "\n".join([f"requests {len(found)}", f"ns {sum(found)}", *(f"{least} {count}" for least, count in buckets)])


def files(end: End, counted: bool) -> dict[str, str]:
    """The files of a device: of no requests, or of those that were counted."""
    return {f"{kind}_{stage}": histogram(times(requests, shortest, longest) if counted else []) + "\n"
            for kind, (requests, stages) in end.items() for stage, (shortest, longest) in stages.items()}


def server_tree(root: Path, session: str) -> Path:
    """A machine that has a client's disk; returns the folder of its histograms."""
    folder = root / "sys/class/rnbd-server/ctl/devices" / DISK / "sessions" / session
    folder.mkdir(parents=True)
    (folder / "mapping_path").write_text(f"{DISK}\n")
    (folder / "access_mode").write_text("rw\n")
    (root / "sys/class/rtrs-server").mkdir(parents=True)
    return folder / "latency"


class Counting:
    """Counts requests, as a kernel does, as soon as the program asks for it."""

    def __init__(self, folder: Path, end: End) -> None:
        self._folder, self._counted = folder, files(end, True)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(files(end, False))
        self._asks = folder / "seconds"
        self._asks.write_text("0\n")
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def _write(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            (self._folder / name).write_text(text)

    def _go_on(self) -> None:
        while self._asks.read_text().strip() in ("", "0"):
            if self._closed.wait(LOOK_SECONDS):
                return
        # The program reads the files at once, and again when its time is over.
        if not self._closed.wait(SECONDS / 2):
            self._write(self._counted)

    def close(self) -> None:
        """Ends the counting."""
        self._closed.set()
        self._thread.join()


def check_document(text: str) -> str:
    """The output of the program on the server; ValueError if it has no requests of the disk."""
    requests = [stage["requests"] for device in json.loads(text)["devices"] for kind in device["kinds"]
                for stage in kind["stages"]]
    if 0 in requests or not requests:
        raise ValueError(f"no requests in {text}")
    return text
