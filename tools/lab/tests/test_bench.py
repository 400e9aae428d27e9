# SPDX-License-Identifier: GPL-2.0
"""The benchmark's arithmetic, its job files, table and chart."""

import argparse
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from lab import bench
from lab import bench_chart
from lab import bench_image
from lab import bench_report
from lab import setup
from lab import steps
from lab.arch import AMD64
from lab.bench_systems import Configuration
from lab.bench_systems import Job
from lab.bench_systems import needs_own_image
from lab.bench_systems import ON_REQUEST
from lab.bench_systems import SYSTEMS
from lab.paths import Artifacts
from lab.vm_count import Place
from lab.vm_count import Spent


def record(system: str, iops: float, packets: int = 7) -> bench_report.Measured:
    side = {"iops": iops, "total_ios": 1,
            "lat_ns": {"percentile": {"50.000000": 2000, "99.000000": 3000}}}
    return bench_report.measured(Configuration(2, 1024, 1), system,
                                 Job("randread", 4096, 16, 100),
                                 {"packets": packets, "read": side}, 1)


class Messages(unittest.TestCase):
    def test_two_messages_are_found_in_the_packets(self) -> None:
        # Request and four packets of data, each message acknowledged.
        self.assertEqual(bench_report.messages(7, "randread", 4096, 1024), 2)
        self.assertEqual(bench_report.messages(4, "randread", 4096, 4096), 2)
        # The headers take the data of a write over the edge of a packet.
        self.assertEqual(bench_report.messages(8, "randwrite", 4096, 1024), 2)
        self.assertEqual(bench_report.messages(5, "randwrite", 4096, 4096), 2)

    def test_an_invalidation_and_an_answer_are_two_more(self) -> None:
        self.assertEqual(bench_report.messages(11, "randread", 4096, 1024), 4)

    def test_a_mirrored_write_carries_its_data_twice(self) -> None:
        self.assertEqual(bench_report.messages(16, "randwrite", 4096, 1024, copies=2), 4)
        self.assertEqual(bench_report.messages(7, "randread", 4096, 1024, copies=2), 2)

    def test_tcp_has_no_messages(self) -> None:
        self.assertEqual(bench_report.messages(0, "randread", 4096, 1024), 0)


class Report(unittest.TestCase):
    def test_ratio_is_of_the_same_job(self) -> None:
        ours, c = record("ours", 1300.0), record("c", 1000.0, 11)
        self.assertAlmostEqual(bench_report.ratio([ours, c], ours, "c") or 0, 1.3)
        self.assertIsNone(bench_report.ratio([ours, c], ours, "nvme"))
        text = bench_report.table([ours, c])
        self.assertIn("1.30", text)
        self.assertIn("RDMA MTU 1024, 2 CPU(s), 1 device(s)", text)

    def test_a_nanosecond_is_an_instruction(self) -> None:
        self.assertEqual(record("ours", 10000.0).instructions_per_io, 100000)

    def test_with_many_systems_each_row_has_the_ratio_of_ours_to_it(self) -> None:
        others = ("c", "c-trusting", "nvme", "iser", "srp")
        text = bench_report.table([record("ours", 1300.0), *(record(name, 1000.0) for name in others)])
        rows = {line.split()[3]: line.split() for line in text.splitlines() if line.startswith("randread 4K qd16 ")}
        self.assertEqual([rows[name][-1] for name in others], ["1.30"] * len(others))
        self.assertEqual(len(rows["ours"]), len(rows["c"]) - 1)
        self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)

    def test_own_instructions_are_those_of_any_systems_modules(self) -> None:
        spent = {Place(module, "f"): Spent(100) for module in ("iscsi_tcp", "target_core_mod", "kernel", "rdma_rxe")}
        side = {"iops": 1000.0, "total_ios": 10, "lat_ns": {"percentile": {"50.000000": 1, "99.000000": 1}}}
        one = bench_report.measured(Configuration(2, 1024, 1), "iscsi", Job("randread", 4096, 1, 10),
                                    {"packets": 0, "read": side}, 1, spent)
        self.assertEqual(one.own_per_io, 20)

    def test_lines_of_the_chart_are_at_round_figures(self) -> None:
        for most, step in ((9, 2), (10, 2), (11, 5), (14_286, 5_000), (26, 10), (1, 0.2)):
            self.assertAlmostEqual(bench_chart.round_step(most), step, msg=str(most))

    def test_chart_tells_which_systems_use_tcp(self) -> None:
        self.assertIn(">nvme-tcp, iscsi: TCP", bench_chart.chart([record("nvme-tcp", 2.0), record("iscsi", 1.0)]))
        self.assertNotIn("TCP", bench_chart.chart([record("ours", 2.0), record("iser", 1.0)]))

    def test_chart_is_xml_with_a_bar_for_each_record(self) -> None:
        root = ElementTree.fromstring(bench_chart.chart([record("ours", 2.0), record("c", 1.0)]))
        titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(titles, ["ours: 2", "c: 1"])

    def test_all_that_was_measured_is_written(self) -> None:
        nowhere = Path("-")
        made = Artifacts("-", "-", AMD64, Path("vmlinuz"), None, nowhere, nowhere, nowhere, nowhere, [])
        with tempfile.TemporaryDirectory() as folder, mock.patch("lab.paths.artifacts", return_value=made):
            out = Path(folder) / "bench"
            text = bench.write(out, [record("ours", 2.0)])
            self.assertEqual((out / "bench.txt").read_text(), text)
            written = json.loads((out / "bench.json").read_text())
        self.assertEqual(written["about"]["kernel"], "vmlinuz")
        self.assertEqual([one["system"] for one in written["measured"]], ["ours"])


class Plan(unittest.TestCase):
    def test_quick_is_one_machine(self) -> None:
        options = argparse.Namespace(quick=True, everybody=False, cpus=None, rdma_mtu=None, devices=None)
        self.assertEqual(bench.configurations(options), [Configuration(2, 1024, 1)])
        self.assertEqual(len(bench.jobs(True, 100)), 4)

    def test_full_has_every_combination(self) -> None:
        options = argparse.Namespace(quick=False, everybody=False, cpus=None, rdma_mtu=None, devices=None)
        self.assertEqual(len(set(bench.configurations(options))), 8)
        self.assertEqual({job.size for job in bench.jobs(False, 100)}, {4096, 65536, 131072})

    def test_everybody_is_measured_with_one_device(self) -> None:
        options = argparse.Namespace(quick=False, everybody=True, cpus=None, rdma_mtu=None, devices=None)
        self.assertEqual(bench.configurations(options), [Configuration(2, 1024, 1), Configuration(2, 4096, 1)])

    def test_everybody_is_all_but_what_is_on_request(self) -> None:
        for quick in (False, True):
            self.assertEqual(set(bench.default_systems(quick, True)), set(SYSTEMS) - set(ON_REQUEST))
        self.assertEqual(bench.default_systems(True, False), ["ours", "ours-trusting", "c", "c-trusting"])
        self.assertIn("nvme", bench.default_systems(False, False))

    def test_only_scsi_over_a_network_needs_the_image_of_the_benchmark(self) -> None:
        self.assertEqual([name for name in SYSTEMS if needs_own_image([name])], ["iser", "srp", "iscsi"])
        self.assertFalse(needs_own_image(["ours-c"]))

    def test_no_other_purpose_makes_the_image_of_the_benchmark(self) -> None:
        table = setup.table()
        self.assertIn("boot", steps.closure(table, [bench_image.STEP]))
        for purpose, wanted in setup.PURPOSES.items():
            self.assertNotIn(bench_image.STEP, steps.closure(table, wanted), purpose)

    def test_each_system_has_a_colour(self) -> None:
        self.assertEqual(set(bench_chart.COLOURS), set(SYSTEMS))

    def test_devices_share_the_requests(self) -> None:
        text = bench.fio_file(Job("randread", 4096, 4, 1600), ["/dev/a", "/dev/b"], "true")
        self.assertIn("number_ios=800", text)
        self.assertEqual(text.count("filename="), 2)
        self.assertEqual(text.count("exec_prerun="), 1)


if __name__ == "__main__":
    unittest.main()
