# SPDX-License-Identifier: GPL-2.0
"""What a hostile RNBD client does with a device it has opened."""

import struct

import guest_rtrs_peer as rtrs

SESS_INFO, OPEN, IO = 0, 2, 4
READ, WRITE, FLUSH, DISCARD, SECURE_ERASE, WRITE_ZEROES = range(6)
FUA = 1 << 9


class Rnbd:
    """An RNBD session by hand, with one device open."""

    def __init__(self, peer, device_path):
        self.peer = peer
        peer.establish()
        self.ask(struct.pack("<HxxB31x", SESS_INFO, 2), 36)
        answer = self.ask(struct.pack("<HxxBx255s3x", OPEN, 1, device_path.encode()), 56)
        self.device_id = struct.unpack_from("<I", answer, 4)[0]

    def ask(self, message, size):
        """A message that is answered with data."""
        peer = self.peer
        rtrs_message = peer.read_message(usr_len=len(message), length=size)
        place = 16384
        peer.request(message + rtrs_message, place=place, offset=place + len(message))
        _, number = peer.answer()
        if number:
            raise OSError(number, "the server refused a message")
        return peer.scratch.buffer.raw[:size]

    def write(self, data, *, sector=0, prio=0, rw=WRITE, size=None, device_id=None):
        """A write; the errno of the answer."""
        size = len(data) if size is None else size
        device_id = self.device_id if device_id is None else device_id
        message = struct.pack("<HxxIQIIH6x", IO, device_id, sector, rw, size, prio)
        self.peer.request(data + message + struct.pack("<HH", 2, len(message)),
                          offset=len(data) + len(message))
        return self.peer.answer()[1]


def priorities(address, device_path, values):
    """Writes with these priorities; the errno of each."""
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)
        return {value: rnbd.write(bytes(4096), sector=8 * index, prio=value)
                for index, value in enumerate(values)}


def requests(address, device_path):
    """Requests that make no sense, and two that do; the errno of each."""
    results = {}
    block = bytes(4096)
    with rtrs.Peer(address) as peer:
        rnbd = Rnbd(peer, device_path)

        def attempt(name, data=b"", **fields):
            results[name] = rnbd.write(data, **fields)

        attempt("empty write")
        attempt("write of less than a sector", bytes(100))
        attempt("write that says less than it has", block, size=512)
        attempt("write that says more than it has", block, size=8192)
        attempt("write without data", size=4096)
        attempt("write beyond the end", block, sector=1 << 40)
        attempt("write across the end", block, sector=(64 << 11) - 4)
        attempt("write that wraps around", block, sector=(1 << 64) - 4)
        attempt("read with the data of a write", block, rw=READ)
        attempt("unknown operation", block, rw=77)
        attempt("unknown device", block, device_id=rnbd.device_id + 1)
        attempt("last device", block, device_id=0xFFFFFFFF)
        attempt("flush of some bytes", rw=FLUSH, size=4096)
        attempt("flush with data", block, rw=FLUSH)
        for name, operation in (("discard", DISCARD), ("secure erase", SECURE_ERASE),
                                ("write of zeroes", WRITE_ZEROES)):
            attempt(f"empty {name}", rw=operation, size=0)
            attempt(f"{name} of less than a sector", rw=operation, size=511)
            attempt(f"{name} beyond the end", rw=operation, sector=1 << 40, size=4096)
            attempt(f"{name} across the end", rw=operation, size=0xFFFFFE00)
            attempt(f"{name} that wraps around", rw=operation, sector=(1 << 64) - 4, size=4096)
            attempt(f"{name} with data", block, rw=operation)
            attempt(f"{name} with FUA", rw=operation | FUA, size=4096)
        attempt("a good write", block, sector=256)
        attempt("a good discard", rw=DISCARD, sector=512, size=4096)
    return results
