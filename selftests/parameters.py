# SPDX-License-Identifier: GPL-2.0
"""Module parameters: what modinfo says, what is refused at load, what sysfs shows."""

from __future__ import annotations

import contextlib
import errno
import re

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_listener
from lib import guest_modules
from lib import images
from lib import rnbd

TOPOLOGY = "one"

# Name, type and default, by module.
PARAMETERS = {
    "rtrs_server": {"always_invalidate": ("bool", "Y"), "max_chunk_size": ("int", "131072"),
                    "sess_queue_depth": ("int", "512")},
    "rnbd_server": {"port_nr": ("ushort", "1234"), "dev_search_path": ("", "/")},
}
# Of a number in its explanation.
RANGE = r"\d-\d|from \d|at most \d|\d and up"
HEARTBEAT = {"hb_interval_ms": ("", "5000"), "hb_missed_max": ("", "5"),
             "ack_timeout_ms": ("", "0")}
LIMITS = {"max_sessions": ("uint", "4096"), "max_sessions_per_client": ("uint", "256"),
          "max_paths": ("uint", "16384"), "max_paths_per_client": ("uint", "1024"),
          "max_connections": ("uint", "262144"), "max_connections_per_client": ("uint", "16384"),
          "max_half_open": ("uint", "1024"), "max_half_open_per_client": ("uint", "64")}
EXTENSIONS = {"rtrs_server": {"chunk_pool_mb": ("uint", "0"), "require_auth": ("bool", "N"), **HEARTBEAT, **LIMITS},
              "rnbd_server": {"require_export_policy": ("bool", "N"),
                              "file_io_mode": ("string", "direct"),
                              "block_io_mode": ("string", "direct"), "discovery": ("bool", "Y"),
                              "realtime_priority": ("bool", "N"), "state_dir": ("string", "")},
              "rtrs_client": {**HEARTBEAT, "nr_connections": ("", "0"), "reconnect_delay_ms": ("", "30000"),
                              "connect_timeout_ms": ("", "30000"),
                              "max_reconnect_attempts": ("", "-1"), "hold_io_ms": ("", "0")},
              "rnbd_client": {"host_uuid": ("string", "none")}}


def parameters_of(t: Test) -> dict[str, dict[str, tuple[str, str]]]:
    """Parameters of each module, with ours those that C does not have too."""
    if t.modules != "ours":
        return PARAMETERS
    return {module: PARAMETERS.get(module, {}) | EXTENSIONS[module] for module in EXTENSIONS}


def not_loaded(t: Test, module: str, parameters: str, *numbers: int) -> None:
    """Loading with these must fail with one of the errnos, and name the parameter in the log."""
    name = parameters.split("=")[0]
    mark = t.server.log_mark()
    try:
        t.server.modules_load(module, **{module: parameters})
    except OSError as error:
        t.check(error.errno in numbers, f"{module} {parameters[:60]}: errno {error.errno}")
    else:
        raise AssertionError(f"{module} loaded with {parameters[:60]}")
    t.check(not t.server.module_loaded(module), f"{module} is loaded")
    said = t.server.log_since(mark)
    # A long value leaves no room for the name in what the kernel says by itself.
    names = (name, name.replace("_", " "))
    t.check(t.modules == "c" or any(one in line for line in said for one in names),
            f"{module} {parameters[:60]}: no message names {name}: {said}")


def test_modinfo(t: Test) -> None:
    """modinfo explains every parameter, with its type, and its range and default."""
    for module, wanted in parameters_of(t).items():
        file = t.server.call(guest_modules.find, folder=f"/host/modules/{t.modules}",
                             name=module)
        text = t.server.sh(["modinfo", "-p", file])
        t.equal(sorted(line.split(":")[0] for line in text.splitlines()), sorted(wanted),
                f"parameters of {module}")
        for name, (kind, default) in wanted.items():
            lines = [line for line in text.splitlines() if line.startswith(f"{name}:")]
            t.equal(len(lines), 1, f"lines of modinfo about {name}")
            t.check(len(lines[0]) > len(name) + 20, f"modinfo does not explain {name}")
            t.check(not kind or lines[0].endswith(f"({kind})"), f"type of {name}: {lines[0]}")
            if t.modules == "ours":
                t.check(f"default: {default or 'none'})" in lines[0], f"default of {name}: {lines[0]}")
                t.check(not default.lstrip("-").isdigit() or re.search(RANGE, lines[0]),
                        f"range of {name}: {lines[0]}")


def test_defaults_in_sysfs(t: Test) -> None:
    """Parameters can be read back, with their defaults, and not be changed."""
    rnbd.load(t, ack_timeout_ms=0)
    for module, wanted in parameters_of(t).items():
        for name, (_kind, default) in wanted.items():
            path = f"/sys/module/{module}/parameters/{name}"
            t.equal(t.server.read(path), default, path)
            t.equal(oct(t.server.mode(path)), oct(0o444), f"mode of {path}")


def test_chunk_size(t: Test) -> None:
    """max_chunk_size is a power of two of at least 8192."""
    t.server.modules_unload_all()
    for value in (0, -1, 4096, 8191, 8193, 100000, 131071):
        not_loaded(t, "rtrs_server", f"max_chunk_size={value}", errno.EINVAL)
    not_loaded(t, "rtrs_server", "max_chunk_size=4294967296", errno.ERANGE)
    not_loaded(t, "rtrs_server", "max_chunk_size=128k", errno.EINVAL)
    rnbd.load(t, client=False, rtrs_server="max_chunk_size=8192")
    t.equal(t.server.read("/sys/module/rtrs_server/parameters/max_chunk_size"), "8192",
            "max_chunk_size")


def test_queue_depth(t: Test) -> None:
    """sess_queue_depth is 1 to 65535."""
    t.server.modules_unload_all()
    for value in (0, -1, 65536, 1000000):
        not_loaded(t, "rtrs_server", f"sess_queue_depth={value}", errno.EINVAL)
    for text in ("1 max_chunk_size=8192", "65535 max_chunk_size=8192"):
        # The second does not fit an immediate: 16 + 13 bits are one too many.
        if text.startswith("65535"):
            not_loaded(t, "rtrs_server", f"sess_queue_depth={text}", errno.EINVAL)
        else:
            rnbd.load(t, client=False, rtrs_server=f"sess_queue_depth={text}")
            t.server.modules_unload_all()


@case(module_sets=("ours",))
def test_one_chunk(t: Test) -> None:
    """The server takes a sess_queue_depth of 1; our client needs one more, and says so."""
    rnbd.load(t, rtrs_server="sess_queue_depth=1")
    t.equal(t.server.read("/sys/module/rtrs_server/parameters/sess_queue_depth"), "1",
            "sess_queue_depth")
    mark = t.client.log_mark()
    with t.expect_errno(errno.ECONNRESET):
        rnbd.map_device(t, disks.PLAIN)
    t.client.wait_log("the server's queue depth of 1 leaves no room for requests", mark)
    t.equal(t.client.listdir(rnbd.CLIENT_SESSIONS), [], "sessions of the client")
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), [], "mappings")
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), [], "sessions of the server")


def test_immediate_size(t: Test) -> None:
    """Chunk number and offset together have 28 bits."""
    t.server.modules_unload_all()
    for depth, size in ((2049, 131072), (32769, 8192), (65535, 1048576), (2, 1 << 28)):
        not_loaded(t, "rtrs_server", f"sess_queue_depth={depth} max_chunk_size={size}",
                errno.EINVAL)
    for depth, size in ((2048, 131072), (32768, 8192), (2, 1 << 27)):
        t.server.modules_load("rtrs_server",
                              rtrs_server=f"sess_queue_depth={depth} max_chunk_size={size}")
        t.server.modules_unload_all()


def test_invalidate(t: Test) -> None:
    """always_invalidate is a boolean; its name alone means Y, that of a number nothing."""
    t.server.modules_unload_all()
    not_loaded(t, "rtrs_server", "always_invalidate=maybe", errno.EINVAL)
    not_loaded(t, "rtrs_server", "always_invalidate=", errno.EINVAL)
    not_loaded(t, "rtrs_server", "max_chunk_size", errno.EINVAL)
    for text, value in (("always_invalidate=n", "N"),
                        ("always_invalidate=n always_invalidate", "Y")):
        rnbd.load(t, client=False, rtrs_server=text)
        t.equal(t.server.read("/sys/module/rtrs_server/parameters/always_invalidate"), value, text)


def test_port(t: Test) -> None:
    """port_nr has 16 bits."""
    t.server.modules_unload_all()
    not_loaded(t, "rnbd_server", "port_nr=65536", errno.ERANGE)
    not_loaded(t, "rnbd_server", "port_nr=-1", errno.EINVAL)
    not_loaded(t, "rnbd_server", "port_nr=http", errno.EINVAL)


@case(module_sets=("ours",))
def test_host_uuid(t: Test) -> None:
    """The name of the machine is a UUID."""
    t.server.modules_unload_all()
    for text in ("", "x", "01234567-89ab-cdef-0123-456789abcde", "00000000-0000-0000-0000-000000000000"):
        not_loaded(t, "rnbd_client", f"host_uuid={text}", errno.EINVAL)
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    rnbd.load(t, rnbd_client=f"host_uuid={uuid.upper()}")
    t.equal(t.server.read("/sys/module/rnbd_client/parameters/host_uuid"), uuid, "host_uuid")


@case(module_sets=("ours",))
def test_port_zero(t: Test) -> None:
    """Port 0 would be one that no client knows."""
    t.server.modules_unload_all()
    not_loaded(t, "rnbd_server", "port_nr=0", errno.EINVAL)


@case(module_sets=("ours",))
def test_state_dir(t: Test) -> None:
    """state_dir is the full path of a folder that can be written for good."""
    t.server.modules_unload_all()
    for path, number in (("relative", errno.EINVAL), ("/nowhere", errno.ENOENT), ("/etc/passwd", errno.ENOTDIR),
                         ("/proc", errno.EINVAL), ("/dev", errno.EINVAL)):
        not_loaded(t, "rnbd_server", f"state_dir={path}", number)
    folder = images.file_system(t)
    mark = t.server.log_mark()
    not_loaded(t, "rnbd_server", f"state_dir={folder}", errno.ENOENT)
    t.server.wait_log("has no file .rnbd-reservations", mark)
    t.server.run(f"touch {folder}/rnbd-reservations")
    t.server.modules_load("rnbd_server", rnbd_server=f"state_dir={folder}")
    t.equal(t.server.read("/sys/module/rnbd_server/parameters/state_dir"), folder, "state_dir")
    t.server.modules_unload_all()


def test_port_in_use(t: Test) -> None:
    """A port that somebody else listens on: the server says so, and takes no clients."""
    t.server.modules_unload_all()
    t.server.run("modprobe rdma_ucm")
    t.server.call(guest_listener.start, port=4321, accept=False, data=[])
    t.defer(t.server.call, guest_listener.stop)
    mark = t.server.log_mark()
    with contextlib.suppress(OSError):
        t.server.modules_load("rnbd_server", rnbd_server="port_nr=4321")
    t.server.wait_log("(?i)bind.*failed|listen", mark)
    t.server.modules_unload_all()


def test_search_path(t: Test) -> None:
    """dev_search_path is shorter than a path may be; a newline at its end is cut."""
    t.server.modules_unload_all()
    not_loaded(t, "rnbd_server", "dev_search_path=/" + "x" * 4096, errno.EINVAL, errno.ENOSPC)
    t.server.modules_load("rnbd_server", rnbd_server="dev_search_path=/dev/%SESSNAME%")
    t.equal(t.server.read("/sys/module/rnbd_server/parameters/dev_search_path"),
            "/dev/%SESSNAME%", "dev_search_path")
    t.server.modules_unload_all()
    # In quotes, as else it would end the parameter.
    rnbd.load(t, rnbd_server='dev_search_path="/dev\n"')
    t.equal(t.server.read_bytes("/sys/module/rnbd_server/parameters/dev_search_path"), b"/dev\n",
            "dev_search_path given with a newline")
    rnbd.map_device(t, "vdb").unmap()
    t.server.modules_unload_all()


@case(module_sets=("ours",))
def test_pool(t: Test) -> None:
    """A pool that the machine has no memory for is refused."""
    t.server.modules_unload_all()
    not_loaded(t, "rtrs_server", "chunk_pool_mb=-1", errno.EINVAL)
    not_loaded(t, "rtrs_server", "chunk_pool_mb=4294967296", errno.ERANGE)
    for value in (1 << 20, (1 << 32) - 1):
        not_loaded(t, "rtrs_server", f"chunk_pool_mb={value}", errno.ENOMEM)
