# SPDX-License-Identifier: GPL-2.0
"""The same thing over and over, without a word to the host in between."""

import os
import time


def _write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_each(path, lines):
    """Writes each line to a file, by a write(2) each; the seconds it took."""
    started = time.monotonic()
    for line in lines:
        _write(path, line)
    return time.monotonic() - started


def map_and_unmap(map_device, text, link, count):
    """Maps a device, writes a block and unmaps it, ``count`` times."""
    for _ in range(count):
        _write(map_device, text)
        disk = os.path.basename(os.path.realpath(link))
        fd = os.open(f"/dev/{disk}", os.O_WRONLY | os.O_SYNC)
        try:
            os.pwrite(fd, b"x" * 4096, 0)
        finally:
            os.close(fd)
        # Whoever looks at new disks may still have it open.
        for attempt in range(100):
            try:
                _write(f"{link}/rnbd/unmap_device", "normal")
                break
            except OSError:
                if attempt == 99:
                    raise
                time.sleep(0.02)
