# SPDX-License-Identifier: GPL-2.0
"""fio in a guest, its JSON report as numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lab.selftest_case import DataError
from lab.vm_node import CommandFailed
from lab.vm_node import Job
from lab.vm_node import Node

# What fio says of data that is not what it has written.
VERIFY = "verify:"


@dataclass
class Side:
    """One direction of a run."""

    ios: int
    bytes: int
    iops: float
    mean_latency_us: float
    p99_latency_us: float


@dataclass
class Report:
    """A run's sum over its jobs."""

    read: Side
    write: Side
    trim: Side
    errors: int

    @property
    def iops(self) -> float:
        """IO per second, all directions."""
        return self.read.iops + self.write.iops + self.trim.iops


@dataclass
class Run:
    """A fio that runs."""

    node: Node
    argv: list[str]
    job: Job

    def wait(self, check: bool = True) -> Report:
        """What it reports at its end. ``check`` raises on any IO or verification error."""
        result = self.job.wait()
        start_of_json = result.out.find("{")
        if start_of_json < 0 or (check and result.rc != 0):
            why = "timed out" if result.timed_out else f"exit code {result.rc}"
            text = result.out[:start_of_json if start_of_json >= 0 else None]
            error = DataError if VERIFY in result.err else CommandFailed
            raise error(f"{self.node.name}: `{' '.join(self.argv)}`: {why}\n"
                        f"{text[-800:]}{result.err[-800:]}")
        return report_of(result.out)


def start(node: Node, filename: str, *, timeout: float = 120.0, **options: object) -> Run:
    """Start fio on a device or file. Options as fio names them, without dashes;
    direct io_uring unless told otherwise."""
    settings: dict[str, object] = {
        "name": "selftest", "filename": filename, "ioengine": "io_uring", "direct": 1,
        "thread": 1, "group_reporting": 1, "randrepeat": 1, "verify_fatal": 1,
        "output-format": "json"}
    settings.update(options)
    argv = ["fio"] + [f"--{key}" if value is True else f"--{key}={value}"
                      for key, value in settings.items()]
    return Run(node, argv, node.start_job(argv, timeout=timeout))


def fio(node: Node, filename: str, *, check: bool = True, timeout: float = 120.0,
        **options: object) -> Report:
    """Run fio to its end, as ``start`` and ``Run.wait`` do."""
    return start(node, filename, timeout=timeout, **options).wait(check)


def report_of(text: str) -> Report:
    """The report of one fio, which may come after other lines."""
    return _report(json.loads(text[text.index("{"):]))


def verified(node: Node, filename: str, **options: Any) -> Report:
    """fio that writes, then reads back and compares checksums."""
    verify = {"verify": "crc32c", "do_verify": 1, "verify_backlog": 0}
    return fio(node, filename, **{**verify, **options})


def _side(job: dict[str, Any], name: str) -> Side:
    part = job[name]
    latency = part.get("clat_ns", {})
    return Side(part["total_ios"], part["io_bytes"], part["iops"],
                latency.get("mean", 0.0) / 1000,
                latency.get("percentile", {}).get("99.000000", 0) / 1000)


def _report(table: dict[str, Any]) -> Report:
    job = table["jobs"][0]
    return Report(_side(job, "read"), _side(job, "write"), _side(job, "trim"),
                  job.get("total_err", 0) or job.get("error", 0))


def fio_jobs(node: Node, filename: str, jobs: list[dict[str, object]], *, timeout: float = 120.0,
             **common: object) -> list[Report]:
    """Several jobs, one after another, by one fio; each job needs a ``name``."""
    common = {"filename": filename, "thread": 1, "randrepeat": 1, **common}
    lines = ["[global]", *(f"{key}={value}" for key, value in common.items())]
    for index, job in enumerate(jobs):
        lines.append(f"[{job['name']}]")
        lines += [f"{key}={value}" for key, value in job.items() if key != "name"]
        if index:
            lines.append("stonewall")
    result = node.run(["fio", "--output-format=json", "-"], check=False, timeout=timeout,
                      stdin="\n".join(lines) + "\n")
    start = result.out.find("{")
    if result.rc != 0 or start < 0:
        why = "timed out" if result.timed_out else f"exit code {result.rc}"
        raise CommandFailed(f"{node.name}: fio {filename}: {why}\n{result.out[:start][-800:]}"
                            f"{result.err[-1500:]}")
    return [_report({"jobs": [job]}) for job in json.loads(result.out[start:])["jobs"]]
