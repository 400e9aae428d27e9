# SPDX-License-Identifier: GPL-2.0
"""rnbdctl: the configuration file, rates and metrics."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import program
from lib import rnbd

TOPOLOGY = "one"

FILE = "/etc/rnbd/rnbd.toml"
FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())"


def config(t: Test, *devices: str, paths: list[str] | None = None, **keys: object) -> None:
    """Write the configuration: session sess with these devices, each as TOML has it."""
    paths = paths or [t.server.address]
    lines = ["[[session]]", 'name = "sess"', f"paths = {json.dumps(paths)}", f"devices = [{', '.join(devices)}]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    t.client.run("mkdir -p /etc/rnbd")
    t.client.create(FILE, "\n".join(lines) + "\n")


def prepare(t: Test, **options: Any) -> None:
    """The modules and the program; whatever is mapped goes afterwards."""
    rnbd.load(t, **options)
    program.install(t.client)
    t.defer(t.client.run, f"rm -f {FILE}; rnbdctl unmap --all --force")


def mapped(t: Test) -> dict[str, dict[str, Any]]:
    """The devices of the client, by their path at the server."""
    listed = program.json_of(t.client, "list", "devices", "--client")
    return {device["device_path"]: device for device in listed["client"]["devices"]}


def paths(t: Test) -> list[str]:
    """The destinations of the session's paths."""
    return sorted(name.rsplit("@", 1)[-1] for name in t.client.listdir(f"{rnbd.CLIENT_SESSIONS}/sess/paths"))


@case()
def test_apply(t: Test) -> None:
    """A file is applied once; what differs later is made so again, what is more goes by --prune."""
    prepare(t)
    first, second = f'"{disks.PLAIN}"', f'{{ path = "{disks.WITHOUT_DISCARD}", access_mode = "ro" }}'
    both = [t.server.address, t.server.address6]
    if t.server.module_set == "c":
        # Its server takes the second path, from the same machine over IPv6, for the first (EEXIST).
        both.pop()
    config(t, first, second, paths=both, policy="round-robin", max_reconnect_attempts=7)
    planned = program.json_of(t.client, "apply", "--dry-run")["changes"]
    t.equal({change["result"] for change in planned}, {"planned"}, "results of a dry run")
    t.equal(mapped(t), {}, "devices after a dry run")
    t.client.run("rnbdctl apply")
    t.equal({path: device["access_mode"] for path, device in mapped(t).items()},
            {disks.PLAIN: "rw", disks.WITHOUT_DISCARD: "ro"}, "devices")
    t.equal(paths(t), sorted(f"ip:{address}" for address in both), "paths")
    folder = f"{rnbd.CLIENT_SESSIONS}/sess"
    t.check(t.client.read(f"{folder}/mpath_policy").startswith("round-robin"),
            "the policy is another")
    t.equal(t.client.read(f"{folder}/max_reconnect_attempts"), "7", "max_reconnect_attempts")
    t.equal(t.client.sh("rnbdctl apply"), "nothing to do", "applied again")

    t.client.write(f"{folder}/max_reconnect_attempts", "8")
    t.client.sh(f"rnbdctl unmap {mapped(t)[disks.WITHOUT_DISCARD]['name']}")
    t.equal(t.client.sh("rnbdctl apply --dry-run"),
            "sess:\n  ~ max_reconnect_attempts: 8 -> 7\n"
            f"  + device {disks.WITHOUT_DISCARD} (ro)\n2 changes to make", "difference")
    t.client.run("rnbdctl apply")
    t.equal(t.client.sh("rnbdctl apply"), "nothing to do", "applied after a change")

    t.client.run("rnbdctl config save --force /tmp/saved.toml")
    t.equal(t.client.sh("rnbdctl apply --prune /tmp/saved.toml"), "nothing to do",
            "what was saved, applied")
    config(t, second)
    t.equal(t.client.sh("rnbdctl apply"), "nothing to do", "less, without --prune")
    t.equal(len(mapped(t)), 2, "devices without --prune")
    t.client.run("rnbdctl apply --prune")
    t.equal((list(mapped(t)), paths(t)), ([disks.WITHOUT_DISCARD], [f"ip:{t.server.address}"]),
            "what is left")
    t.equal(t.client.sh("rnbdctl apply --prune"), "nothing to do", "pruned again")


@case()
def test_other_access_mode(t: Test) -> None:
    """A device is mapped again in another way unless it is in use."""
    prepare(t)
    config(t, f'"{disks.PLAIN}"')
    t.client.run("rnbdctl apply")
    config(t, f'{{ path = "{disks.PLAIN}", access_mode = "ro" }}')
    node = mapped(t)[disks.PLAIN]["path"]
    t.client.run("rm -f /tmp/held")
    holder = t.client.start_job(f"exec < {node}; touch /tmp/held; exec sleep infinity")
    t.client.wait_for("/tmp/held")
    result = t.client.run("rnbdctl apply", check=False)
    t.equal((result.rc, mapped(t)[disks.PLAIN]["access_mode"]), (5, "rw"),
            f"a device in use; {result.err!r}")
    t.check("in use" in result.err, f"said {result.err!r}")
    holder.kill()
    holder.wait()
    t.client.run("rnbdctl apply")
    t.equal(mapped(t)[disks.PLAIN]["access_mode"], "ro", "access mode")


@case()
def test_partial_failure(t: Test) -> None:
    """A disk that is not there, or a path that leads nowhere, does not keep the rest away."""
    prepare(t)
    config(t, '"nothing/here"', f'"{disks.PLAIN}"')
    result = t.client.run("rnbdctl apply", check=False)
    t.equal((result.rc, list(mapped(t))), (3, [disks.PLAIN]),
            f"exit code and devices; {result.err!r}")
    t.check("nothing/here" in result.err and "no such disk" in result.err, f"said {result.err!r}")
    t.client.create(FILE, "[[session]]\nnames = 'x'\n")
    result = t.client.run("rnbdctl apply --prune", check=False)
    t.equal((result.rc, list(mapped(t))), (9, [disks.PLAIN]),
            "exit code and devices with a broken file")
    t.check(f"{FILE}:2:1: names: unknown key" in result.err, f"said {result.err!r}")


@case()
def test_wait(t: Test) -> None:
    """apply --wait tries until the server is there; SIGTERM ends it."""
    prepare(t, server=False)
    config(t, f'"{disks.PLAIN}"')
    job = t.client.start_job("exec rnbdctl apply --wait 2> /tmp/waiting")
    t.client.wait_for("/tmp/waiting", matches="not complete yet, trying again", timeout=40)
    t.check(not job.done(), "it did not wait")
    t.server.modules_load("rnbd_server", rnbd_server="")
    result = job.wait()
    t.equal((result.rc, list(mapped(t))), (0, [disks.PLAIN]), "exit code and devices")
    config(t, '"nothing/here"', f'"{disks.PLAIN}"')
    # Not the same file, which has the line already: the signal would come before the program.
    job = t.client.start_job("exec rnbdctl apply --wait 2> /tmp/ended")
    t.client.wait_for("/tmp/ended", matches="not complete yet, trying again")
    job.kill(signal.SIGTERM)
    t.check(job.wait().rc in (-15, 143), "it did not end by SIGTERM")
    t.equal(t.client.run("rnbdctl apply --retry-for 1", check=False).rc, 3,
            "exit code when the time is over")


@case()
def test_ended_while_connecting(t: Test) -> None:
    """SIGTERM ends apply at once also while the kernel waits for a server that does not answer."""
    # C always waits for 30 s; the debug kernel's server takes more than six to answer.
    timeout = 30000 if t.debug else 6000
    prepare(t, rtrs_client="" if t.client.module_set == "c" else f"connect_timeout_ms={timeout}")
    nobody = t.server.address.rsplit(".", 1)[0] + ".99"
    config(t, f'"{disks.PLAIN}"', paths=[nobody])
    mark = t.client.log_mark()
    job = t.client.start_job("exec rnbdctl apply --wait")
    t.client.wait_log("Mapping device", mark)
    started = time.monotonic()
    job.kill(signal.SIGTERM)
    t.check(job.wait().rc in (-15, 143), "it did not end by SIGTERM")
    taken = time.monotonic() - started
    t.check(taken < 5 * t.client.slow, f"ending took {taken:.1f} s")
    config(t, f'"{disks.PLAIN}"', paths=[nobody, t.server.address])
    job = t.client.start_job("exec rnbdctl apply", timeout=90)
    t.client.wait_for(f"{rnbd.CLIENT_DEVICES}/{rnbd.link_name(disks.PLAIN, 'sess')}", timeout=60)
    result = job.wait()
    t.check(result.rc == 6 and nobody in result.err, f"exit code {result.rc}, said {result.err!r}")


@case()
def test_rates_and_metrics(t: Test) -> None:
    """top --once, stats and the exporter tell what a device does."""
    prepare(t)
    config(t, f'"{disks.PLAIN}"')
    t.client.run("rnbdctl apply")
    name = mapped(t)[disks.PLAIN]["name"]
    exporter = t.client.start_job("exec rnbdctl exporter --listen 127.0.0.1:9871 2> /tmp/exporter")
    t.client.wait_for("/tmp/exporter", matches="serving http://127.0.0.1:9871/metrics")
    reader = t.client.start_job(f"while :; do dd if=/dev/{name} of=/dev/null bs=4k count=256 "
                                "iflag=direct 2>/dev/null; done")
    try:
        t.client.wait_for(f"/sys/block/{name}/stat", matches=r"^\s*[1-9]")
        rates = program.json_of(t.client, "top", "--once", "--interval", 1)
    finally:
        reader.kill()
        reader.wait()
    device = rates["devices"][0]
    t.check(device["read_iops"] > 0 and device["read_ms"] > 0, f"rates {device}")
    client = [path for path in rates["paths"] if path["side"] == "client"]
    t.check(len(client) == 1 and client[0]["read_iops"] > 0, f"paths {rates['paths']}")
    metrics = t.client.sh(["python3", "-c", FETCH, "http://127.0.0.1:9871/metrics"])
    stats = rnbd.disk_stats(t.client, name)
    expected = f'rnbd_device_reads_total{{device="{name}",session="sess"}} {stats["reads"]}'
    t.check(expected in metrics.splitlines(), f"no {expected} in {metrics}")
    t.check('rnbd_path_connected{session="sess"' in metrics and "rnbd_server_path_reads_total" in metrics,
            f"paths are missing in {metrics}")
    counted = program.json_of(t.client, "stats", "sess")["paths"][0]
    t.check(counted["reads"] > 0, f"counted {counted}")
    t.client.run("rnbdctl stats --reset sess")
    again = program.json_of(t.client, "stats", "sess")["paths"][0]
    t.check(again["reads"] < counted["reads"], f"after a reset {again}")
    # The device goes while it is being watched.
    t.client.run(f"rnbdctl unmap --force {name}")
    metrics = t.client.sh(["python3", "-c", FETCH, "http://127.0.0.1:9871/metrics"])
    t.check("rnbd_device_reads_total" not in metrics, "a device that is gone has metrics")
    exporter.kill(signal.SIGTERM)
    t.equal(exporter.wait().rc, 0, "exit code of the exporter")
