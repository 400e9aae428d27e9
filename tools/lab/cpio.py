# SPDX-License-Identifier: GPL-2.0
"""Writes cpio archives in the `newc` format, which the kernel unpacks as an initramfs."""

import stat
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One name of the archive; `device` is (major, minor) of a character device."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(name: str) -> Entry:
    return Entry(name, stat.S_IFDIR | 0o755)


def file(name: str, data: bytes, mode: int = 0o644) -> Entry:
    return Entry(name, stat.S_IFREG | mode, data)


def link(name: str, to: str) -> Entry:
    return Entry(name, stat.S_IFLNK | 0o777, to.encode())


def device(name: str, major: int, minor: int) -> Entry:
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def _record(number: int, entry: Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = [number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, *entry.device, len(name), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    head += b"\0" * (-len(head) % 4)
    return head + entry.data + b"\0" * (-len(entry.data) % 4)


def archive(entries: list[Entry]) -> bytes:
    """The archive of `entries`, in their order (folders before what is in them)."""
    body = b"".join(_record(number, entry) for number, entry in enumerate(entries, 1))
    body += _record(0, Entry("TRAILER!!!", 0))
    return body + b"\0" * (-len(body) % 512)
