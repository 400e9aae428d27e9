# SPDX-License-Identifier: GPL-2.0
"""The samples: a user of the transport that has nothing to do with blocks."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lab.vm import wait_until
from lib import disks
from lib import guest_kv
from lib import rnbd

TOPOLOGY = "one"

CLIENT, SERVER = "rtrs_kv_client", "rtrs_kv_server"
PATHS = f"{rnbd.CLIENT_SESSIONS}/kv/paths"
PAGE = 4096
# Of a buffer of 128 KiB the header and the length of the value are not the value's.
LARGEST = (128 << 10) - 4096 - 4
MOST_VALUES = 64
BUSY = errno.EAGAIN  # delete_module(2) on a module that is used


def load_server(t: Test, rtrs_server: str = "") -> None:
    """Have the server's half, with these parameters of the transport."""
    text = f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS} {rtrs_server}".rstrip()
    t.server.modules_load(SERVER, rtrs_server=text)


def load_client(t: Test, keys: str = "colour", server: str | None = None) -> None:
    """Have the client's half, with these keys."""
    address = f"ip:{t.server.address}" if server is None else server
    t.client.modules_load(CLIENT, rtrs_client=f"ack_timeout_ms={rnbd.ACK_TIMEOUT_MS}",
                          **{CLIENT: f"server={address} keys={keys}"})


def load(t: Test, keys: str = "colour", rtrs_server: str = "") -> None:
    """Have both halves, and nothing else; unloaded when the test is over."""
    t.client.modules_unload_all()
    t.defer(t.client.modules_unload_all)
    load_server(t, rtrs_server or rnbd.fewer_buffers(t))
    load_client(t, keys)


def works(t: Test, key: str = "colour", length: int = 1000, seed: int = 1) -> None:
    """A value that is put is got."""
    t.client.call(guest_kv.put, key=key, length=length, seed=seed)
    is_value(t, key, length, seed)


def is_value(t: Test, key: str, length: int, seed: int, when: str = "") -> None:
    """A key has the pattern of this seed."""
    wrong = t.client.call(guest_kv.difference, key=key, length=length, seed=seed)
    t.intact(wrong, "", f"value of {key}, {length} bytes {when}".rstrip())


def put(t: Test, key: str, text: str) -> None:
    """Write a text to a key's value."""
    t.client.write(f"{guest_kv.FOLDER}/{key}/value", text)


def get(t: Test, key: str) -> str:
    """A key's value as text."""
    return t.client.read(f"{guest_kv.FOLDER}/{key}/value")


def clean(t: Test) -> None:
    """Nothing is left of the client's half."""
    for folder in (guest_kv.FOLDER, f"{rnbd.CLIENT_SESSIONS}/kv"):
        t.equal(t.client.exists(folder), False, f"{folder} is there")
    t.equal(t.client.module_loaded(CLIENT), False, "the client's module is loaded")


@case(quick=EVERYWHERE, module_sets=("ours",))
def test_put_and_get(t: Test) -> None:
    """What was put under a key is got by that key; a key that has no value gives ENOENT."""
    # Longer than a header that the server's user gets where completions are handled, and longer than a request's name.
    long_key = "k" * 200
    load(t, f"colour,shape,{long_key}")
    for key in ("colour", "shape", long_key):
        with t.expect_errno(errno.ENOENT):
            get(t, key)
    put(t, "colour", "blue")
    put(t, long_key, "long")
    t.intact(get(t, "colour"), "blue", "colour")
    t.intact(get(t, long_key), "long", "the long key's value")
    with t.expect_errno(errno.ENOENT):
        get(t, "shape")
    put(t, "colour", "red")
    put(t, "shape", "round")
    t.intact([get(t, "colour"), get(t, "shape"), get(t, long_key)], ["red", "round", "long"], "values")


@case(module_sets=("ours",), quick=())
def test_sizes(t: Test) -> None:
    """Values of all sizes come back as they were put: none, a byte, around a page, several pages, the largest."""
    for mode in ("Y", "N"):
        load(t, rtrs_server=f"{rnbd.fewer_buffers(t)}always_invalidate={mode}")
        t.client.write(f"{guest_kv.FOLDER}/colour/clear", "1")
        is_value(t, "colour", 0, 1, "at first")
        for seed, length in enumerate((1, PAGE - 5, PAGE - 4, PAGE, PAGE + 1, 3 * PAGE + 5, 28 * PAGE, 29 * PAGE,
                                       30 * PAGE + 7, LARGEST)):
            works(t, length=length, seed=seed)
        t.client.write(f"{guest_kv.FOLDER}/colour/clear", "1")
        is_value(t, "colour", 0, 1, "when it was emptied")


@case(module_sets=("ours",))
def test_large_values_go_as_one_request(t: Test) -> None:
    """A value of several pages is sent, and fetched, by one request, whose bytes the path's statistics count."""
    load(t)
    works(t, length=PAGE, seed=1)
    stats = f"{PATHS}/{t.client.listdir(PATHS)[0]}/stats/rdma"
    before = [int(word) for word in t.client.read(stats).split()]
    # The last page of this value: the client fetches what precedes it and sends it all.
    t.client.call(guest_kv.put, key="colour", length=10, seed=2, at=PAGE)
    after = [int(word) for word in t.client.read(stats).split()]
    reads, read_bytes, writes, written = (now - then for now, then in zip(after[:4], before[:4], strict=True))
    t.equal((reads, writes), (1, 1), "reads and writes")
    t.equal(read_bytes, LARGEST + 4 + len("colour"), "bytes that were asked for")
    t.equal(written, PAGE + 10 + len("colour"), "bytes that were written")


@case(module_sets=("ours",), quick=("stock",))
def test_many_tasks(t: Test) -> None:
    """Tasks that use the session at the same time get their own values, with more of them than there are tags."""
    keys = [f"key{number}" for number in range(16)]
    # 8 chunks, of which the transport keeps one.
    load(t, ",".join(keys), rtrs_server="sess_queue_depth=8")
    for length in (100, 2 * PAGE + 1):
        problems = t.client.call_within(100, guest_kv.all_at_once, keys=keys, rounds=t.scaled(20, 2), length=length)
        t.intact(problems, [], f"values of {length} bytes")
    problems = t.client.call_within(60, guest_kv.one_key_for_all, key="key0", tasks=8, rounds=t.scaled(30, 3),
                                    length=PAGE)
    t.intact(problems, [], "values of one key")


@case(module_sets=("ours",))
def test_server_unloaded_in_use(t: Test) -> None:
    """When the server's module goes requests fail and none hangs; when it is back they work, and values are gone."""
    load(t, "colour,shape")
    works(t, "shape")
    for round_ in range(t.rounds(2, 10)):
        t.client.call(guest_kv.busy_start, key="colour", length=3 * PAGE)
        t.check(t.client.call(guest_kv.busy_puts, key="colour", count=3, seconds=20.0 * t.client.slow),
                "the task puts no values")
        t.server.module_unload(SERVER)
        ended = t.client.call(guest_kv.busy_stop, key="colour", seconds=20.0 * t.client.slow, stop=False)
        t.equal((ended["runs"], ended["errno"]), (False, errno.ECONNABORTED), f"end of the task, round {round_}")
        with t.expect_errno(errno.ECONNABORTED):
            put(t, "colour", "blue")
        load_server(t)
        path = rnbd.client_path(t, "kv")
        if round_ == 0:
            t.client.wait_for(f"{path}/state", matches="^connected", timeout=40)
        else:
            # By itself that takes longer each time, as the path is lost as soon as it is up.
            rnbd.reconnect(t, path)
        with t.expect_errno(errno.ENOENT):
            get(t, "shape")
        works(t, "shape")


@case(module_sets=("ours",))
def test_path_goes_and_comes(t: Test) -> None:
    """Without a path requests fail at once; when it is connected again the values are there."""
    load(t)
    works(t, length=3 * PAGE, seed=5)
    path = rnbd.client_path(t, "kv")
    t.client.write(f"{path}/disconnect", "1")
    with t.expect_errno(errno.ECONNABORTED):
        get(t, "colour")
    with t.expect_errno(errno.ECONNABORTED):
        put(t, "colour", "blue")
    rnbd.reconnect(t, path)
    is_value(t, "colour", 3 * PAGE, 5, "afterwards")
    works(t, length=5 * PAGE, seed=6)


@case(module_sets=("ours",))
def test_path_goes_under_load(t: Test) -> None:
    """A path that is lost under load ends the requests with an error, and their memory and tags work again."""
    keys = [f"key{number}" for number in range(4)]
    load(t, ",".join(keys), rtrs_server="sess_queue_depth=8")
    path = rnbd.client_path(t, "kv")
    for _ in range(t.rounds(2, 20)):
        for key in keys:
            t.client.call(guest_kv.busy_start, key=key, length=20 * PAGE)
        for key in keys:
            is_busy = t.client.call(guest_kv.busy_puts, key=key, count=1, seconds=20.0 * t.client.slow)
            t.check(is_busy, f"{key}: its task puts no values")
        t.client.write(f"{path}/disconnect", "1")
        for key in keys:
            ended = t.client.call(guest_kv.busy_stop, key=key, seconds=20.0 * t.client.slow, stop=False)
            t.equal((ended["runs"], ended["errno"]), (False, errno.ECONNABORTED), f"end of the task of {key}")
        rnbd.reconnect(t, path)
        # More requests than there are tags.
        for number, key in enumerate(keys * 2):
            works(t, key, length=PAGE * (1 + number), seed=number)


@case(quick=EVERYWHERE, module_sets=("ours",))
def test_unload(t: Test) -> None:
    """Both halves unload in either order, and keep the transport's modules loaded while they are there."""
    for server_first in (False, True):
        load(t)
        works(t)
        for name in ("rtrs_client", "rtrs_server", "rtrs_core"):
            with t.expect_errno(BUSY):
                t.client.module_unload(name)
        if server_first:
            t.server.module_unload(SERVER)
            t.client.module_unload(CLIENT)
        else:
            t.client.module_unload(CLIENT)
            t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/kv", gone=True)
            t.server.module_unload(SERVER)
        clean(t)
        t.equal(t.server.exists(f"{rnbd.SERVER_SESSIONS}/kv"), False, "the server's session is there")
        t.client.module_unload("rtrs_client", "rtrs_server", "rtrs_core")


@case(module_sets=("ours",))
def test_loaded_again_and_again(t: Test) -> None:
    """A client's module that is loaded again finds the values, and its name free."""
    load(t)
    works(t)
    for _ in range(t.rounds(3, 20)):
        t.client.module_unload(CLIENT)
        load_client(t)
        is_value(t, "colour", 1000, 1, "of the last client")


@case(module_sets=("ours",))
def test_path_removed(t: Test) -> None:
    """A session whose only path is removed by hand fails requests, and the module unloads."""
    load(t)
    t.client.write(f"{rnbd.client_path(t, 'kv')}/remove_path", "1")
    with t.expect_errno(errno.ECONNABORTED):
        put(t, "colour", "blue")

    def unloaded() -> bool:
        try:
            t.client.module_unload(CLIENT)
        except OSError as error:
            # The task that removed the path may be an instant from letting go.
            t.equal(error.errno, BUSY, "errno")
            return False
        return True

    wait_until(unloaded, 5 * t.client.slow, "unload of the client")
    clean(t)


@case(quick=EVERYWHERE, module_sets=("ours",))
def test_wrong_parameters(t: Test) -> None:
    """A client with parameters that make no sense does not load, and leaves nothing behind."""
    load(t)
    t.client.module_unload(CLIENT)
    good = f"ip:{t.server.address}"
    for server, keys, numbers in (
            ("", "colour", (errno.EINVAL,)),
            ("ip:no.address", "colour", (errno.EINVAL,)),
            ("nonsense", "colour", (errno.EINVAL,)),
            (good, "", (errno.EINVAL,)),
            (good, "colour,", (errno.EINVAL,)),
            # EEXIST, of which the module loader makes that.
            (good, "colour,colour", (errno.EBUSY,)),
            (good, "k" * 300, (errno.EINVAL, errno.ENAMETOOLONG, errno.ENOMEM))):
        with t.expect_errno(*numbers):
            load_client(t, keys, server)
        clean(t)
    load_client(t)
    works(t)


@case(module_sets=("ours",))
def test_no_server(t: Test) -> None:
    """A client without a server does not load; it does when the server is there."""
    load(t)
    t.client.module_unload(CLIENT)
    t.server.module_unload(SERVER)
    with t.expect_errno(errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT):
        load_client(t)
    clean(t)
    load_server(t)
    load_client(t)
    works(t)


@case(module_sets=("ours",))
def test_limits(t: Test) -> None:
    """What is too long, too much or out of range is refused with an errno, and changes no value."""
    keys = [f"key{number}" for number in range(MOST_VALUES + 1)]
    load(t, ",".join(keys))
    works(t, "key0", length=100, seed=3)
    with t.expect_errno(errno.EINVAL):
        t.client.call(guest_kv.put, key="key0", length=10, seed=1, at=101)
    with t.expect_errno(errno.ENOENT):
        t.client.call(guest_kv.put, key="key1", length=10, seed=1, at=5)
    is_value(t, "key0", 100, 3, "after a write beyond its end")
    works(t, "key0", length=LARGEST, seed=4)
    with t.expect_errno(errno.EFBIG):
        t.client.call(guest_kv.put, key="key0", length=1, seed=1, at=LARGEST)
    is_value(t, "key0", LARGEST, 4, "after one byte too many")
    for key in keys[1:MOST_VALUES]:
        put(t, key, key)
    with t.expect_errno(errno.ENOSPC):
        put(t, keys[-1], "one too many")
    put(t, keys[1], "again")
    t.intact([get(t, keys[1]), get(t, keys[2])], ["again", keys[2]], "values of a full store")


@case(module_sets=("ours",))
def test_beside_disks(t: Test) -> None:
    """Disks and values are served by the same two machines at the same time, and neither minds the other's end."""
    t.client.modules_unload_all()
    rnbd.load(t)
    t.defer(t.client.modules_unload_all)
    load_server(t)
    load_client(t)
    device = rnbd.map_device(t, disks.PLAIN)
    works(t, length=3 * PAGE)
    rnbd.works(t, device)
    t.server.module_unload(SERVER)
    rnbd.works(t, device)
    with t.expect_errno(errno.ECONNABORTED):
        put(t, "colour", "blue")
    t.client.module_unload(CLIENT)
    rnbd.works(t, device)
    load_server(t)
    load_client(t)
    device.unmap()
    t.client.module_unload("rnbd_client", "rnbd_server")
    works(t, length=3 * PAGE)
