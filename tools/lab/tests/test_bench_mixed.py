# SPDX-License-Identifier: GPL-2.0
"""A module with another name, and the table of mixed pairs."""

import struct
import tempfile
import unittest
from pathlib import Path

from lab import bench_mixed
from lab import bench_report
from lab import bench_systems
from lab.bench_systems import Configuration
from lab.bench_systems import Job
from lab.vm_count import Place
from lab.vm_count import Spent


def module(name: str) -> bytes:
    """As much of a kernel module's file as is looked at."""
    contents = {"": b"", ".modinfo": b"license=GPL\0name=" + name.encode() + b"\0",
                ".gnu.linkonce.this_module": bytes(24) + name.encode() + bytes(40),
                ".strtab": name.encode() + b"\0"}
    contents[".shstrtab"] = b"".join(key.encode() + b"\0" for key in (*contents, ".shstrtab"))
    body, headers, names = b"", b"", contents[".shstrtab"]
    for key, data in contents.items():
        place = names.index(key.encode() + b"\0") if key else 0
        headers += struct.pack("<IIQQQQIIQQ", place, 1, 0, 0, 64 + len(body), len(data), 0, 0, 1, 0)
        body += data
    start = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(body))
    start = start.ljust(0x3c, b"\0") + struct.pack("<HH", len(contents), len(contents) - 1)
    return start + body + headers


def record(system: str, iops: float) -> bench_report.Measured:
    side = {"iops": iops, "total_ios": 10,
            "lat_ns": {"percentile": {"50.000000": 2000, "99.000000": 3000}}}
    spent = {Place("rtrs_client", "a"): Spent(300, 1), Place("rnbd_client", "b"): Spent(200, 1),
             Place("rnbd_server", "c"): Spent(100, 1)}
    return bench_report.measured(Configuration(2, 1024, 1), system,
                                 Job("randread", 4096, 16, 10), {"packets": 70, "read": side}, 1,
                                 spent)


class Rename(unittest.TestCase):
    def test_only_the_name_changes(self) -> None:
        image = module("rtrs_core")
        changed = bench_mixed.renamed(image, "rtrs_core", "rtrs_corc")
        self.assertEqual(len(changed), len(image))
        self.assertEqual(sum(a != b for a, b in zip(image, changed, strict=True)), 2)
        offset, size = bench_mixed.sections(changed)[".modinfo"]
        self.assertEqual(changed[offset:offset + size], b"license=GPL\0name=rtrs_corc\0")
        offset, _ = bench_mixed.sections(changed)[".gnu.linkonce.this_module"]
        self.assertEqual(changed[offset + 24:offset + 34], b"rtrs_corc\0")

    def test_what_cannot_be_renamed_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            bench_mixed.renamed(module("rtrs_core"), "rtrs_core", "longer_name")
        with self.assertRaises(ValueError):
            bench_mixed.renamed(module("another"), "rtrs_core", "rtrs_corc")
        with self.assertRaises(ValueError):
            bench_mixed.sections(b"no ELF file")

    def test_sets_have_each_side_and_both_cores(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for owner, dash in (("mine", "_"), ("theirs", "-")):
                (folder / owner).mkdir()
                for part in ("rtrs_core", "rtrs_client", "rtrs_server", "rnbd_client",
                             "rnbd_server"):
                    data = module(part) + owner.encode()
                    (folder / owner / f"{part.replace('_', dash)}.ko").write_bytes(data)
            made = bench_mixed.stage(folder, folder / "mine", folder / "theirs")
            owners = {path.stem: path.read_bytes().endswith(b"mine")
                      for path in made["ours-c"].iterdir()}
        self.assertEqual(owners, {"rtrs_core": True, "rtrs_client": True, "rnbd_client": True,
                                  "rtrs_corc": False, "rtrs_server": False, "rnbd_server": False})


class Table(unittest.TestCase):
    def test_pairs_are_compared_to_c_in_the_same_mode(self) -> None:
        text = bench_mixed.table([record("c", 1000.0), record("ours-c", 1250.0),
                                  record("c-trusting", 2000.0), record("ours-c-trusting", 1000.0)])
        rows = [line.split() for line in text.splitlines()[2:] if line]
        self.assertEqual([row[7] for row in rows], ["1.000", "1.250", "1.000", "0.500"])
        # Client and server by what their modules took.
        self.assertEqual(rows[1][-2:], ["50", "10"])

    def test_without_c_there_is_no_ratio(self) -> None:
        self.assertNotIn("1.0", bench_mixed.table([record("ours-c", 900.0)]))

    def test_spread_is_of_the_same_job_and_pair(self) -> None:
        self.assertAlmostEqual(bench_mixed.spread([[record("c", 100.0), record("ours-c", 500.0)],
                                                   [record("c", 102.0)]]), 0.02)

    def test_every_pair_is_a_system(self) -> None:
        self.assertLessEqual(set(bench_mixed.systems()),
                             {*bench_systems.SYSTEMS, *bench_systems.MIXED})


if __name__ == "__main__":
    unittest.main()
