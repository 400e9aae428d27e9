# SPDX-License-Identifier: GPL-2.0
"""Kernel modules and initramfs of the guest."""

import lzma
import tempfile
import unittest
from pathlib import Path

from lab import cpio
from lab import kmods

DEP = """\
kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/lib/crc16.ko.xz
kernel/fs/jbd2/jbd2.ko.xz:
kernel/lib/crc16.ko.xz:
kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz
kernel/net/9p/9pnet.ko.xz:
kernel/sound/snd-dummy.ko.xz:
"""


class Modules(unittest.TestCase):
    def setUp(self) -> None:
        self.table = kmods.parse_dep(DEP)

    def test_names_have_underscores(self) -> None:
        self.assertEqual(kmods.stem("kernel/sound/snd-dummy.ko.xz"), "snd_dummy")

    def test_a_selection_brings_what_it_needs(self) -> None:
        wanted = ["kernel/fs/ext4/ext4.ko.xz", "kernel/fs/jbd2/jbd2.ko.xz", "kernel/lib/crc16.ko.xz"]
        self.assertEqual(kmods.select(self.table, ["kernel/fs/ext4/*"]), wanted)

    def test_modules_load_after_what_they_need_and_once(self) -> None:
        order = [kmods.stem(path)
                 for path in kmods.load_order(self.table, {"virtio_pci"}, ["virtio_pci", "ext4", "jbd2"])]
        self.assertEqual(order, ["crc16", "jbd2", "ext4"])

    def test_an_unknown_module_is_an_error(self) -> None:
        with self.assertRaises(KeyError):
            kmods.load_order(self.table, set(), ["virtio_blk"])

    def test_copies_are_decompressed(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            source = Path(name) / "from"
            (source / "kernel").mkdir(parents=True)
            (source / "kernel/x.ko.xz").write_bytes(lzma.compress(b"module"))
            kmods.copy_unpacked(source, Path(name) / "to", ["kernel/x.ko.xz"])
            self.assertEqual((Path(name) / "to/kernel/x.ko").read_bytes(), b"module")


class Cpio(unittest.TestCase):
    def test_names_and_contents_are_found_where_the_format_says(self) -> None:
        entries = [cpio.directory("dir"), cpio.file("dir/odd", b"12345", 0o755), cpio.link("l", "dir/odd")]
        archive = cpio.archive(entries)
        self.assertEqual(len(archive) % 512, 0)
        self.assertEqual(archive[:6], b"070701")
        names = []
        at = 0
        while True:
            size, length = int(archive[at + 54 : at + 62], 16), int(archive[at + 94 : at + 102], 16)
            name = archive[at + 110 : at + 110 + length - 1].decode()
            start = (at + 110 + length + 3) & ~3
            if name == "TRAILER!!!":
                break
            names.append((name, archive[start : start + size]))
            at = (start + size + 3) & ~3
        self.assertEqual(names, [("dir", b""), ("dir/odd", b"12345"), ("l", b"dir/odd")])
