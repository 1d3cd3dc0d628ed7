#!/usr/bin/env python3
"""A small NVMe/TCP host, written from the specifications and sharing nothing with the target.

It makes a controller with I/O queues, reads and writes, and checks everything that the end-to-end scripts want to know
of the target. What it writes and verifies is what `_nbd.py` does, over another protocol. Numbers: NVM Express Base 2.0,
NVM Command Set 1.0, NVMe over TCP Transport 1.0.
"""

import argparse
import random
import socket
import struct
import sys

import _nbd

ICREQ, ICRESP, H2C_TERM, C2H_TERM, CMD, RSP, H2C, C2H, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9
F_HDGST, F_DDGST, F_LAST, F_SUCCESS = 1, 2, 4, 8
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
FLUSH, WRITE, READ, COMPARE, WRITE_ZEROES, DSM, VERIFY = 0, 1, 2, 5, 8, 9, 12
REGISTER, REPORT, ACQUIRE, RELEASE = 0x0D, 0x0E, 0x11, 0x15
CONFLICT = 0x83
FUA = 1 << 30
CAP, VS, CC, CSTS = 0, 8, 0x14, 0x1C

CRC_TABLE = []
for _n in range(256):
    for _ in range(8):
        _n = (_n >> 1) ^ (0x82F63B78 if _n & 1 else 0)
    CRC_TABLE.append(_n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


class Failed(Exception):
    """A command that ended with a status other than success: type << 8 | code, without "do not retry"."""

    def __init__(self, status, result):
        super().__init__(f"status {status:#x}, result {result:#x}")
        self.status, self.result = status, result


class Ended(Exception):
    """The controller ended the connection: the fatal error status and the field."""


def sgl_capsule(length):
    return struct.pack("<QI3xB", 0, length, 0x01)


def sgl_transport(length):
    return struct.pack("<QI3xB", 0, length, 0x5A)


class Queue:
    """One connection."""

    def __init__(self, address, digests=0, sqflow=True, timeout=60):
        host, port = address.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=timeout)
        self.digests, self.sqflow = digests, sqflow
        self.cid = 0
        icreq = struct.pack("<BBBBI", ICREQ, 0, 128, 0, 128) + struct.pack("<HBBI", 0, 0, digests, 0)
        self.sock.sendall(icreq.ljust(128, b"\0"))
        kind, flags, header, _ = self.pdu()
        if kind != ICRESP:
            raise ConnectionError(f"PDU {kind} instead of ICResp")
        pfv, cpda, granted, self.h2c_max = struct.unpack("<HBBI", header[:8])
        if (pfv, cpda, granted) != (0, 0, digests):
            raise ConnectionError(f"ICResp grants {pfv} {cpda} {granted}")

    def exactly(self, count):
        parts = []
        while count:
            part = self.sock.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionError("the controller closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def pdu(self):
        """The next PDU: its type, flags, header without the common part, and data."""
        common = self.exactly(8)
        kind, flags, hlen, pdo, plen = struct.unpack("<BBBBI", common)
        header = self.exactly(hlen - 8)
        at = hlen
        if flags & F_HDGST and kind not in (ICRESP, C2H_TERM):
            digest = self.exactly(4)
            at += 4
            if digest != crc32c(common + header):
                raise ConnectionError("a header digest is wrong")
        data = b""
        if plen > at:
            if kind == C2H:
                self.exactly(pdo - at)
                at = pdo
            length = plen - at - (4 if flags & F_DDGST else 0)
            data = self.exactly(length)
            if flags & F_DDGST and self.exactly(4) != crc32c(data):
                raise ConnectionError("a data digest is wrong")
        if kind == C2H_TERM:
            raise Ended(struct.unpack("<HI", header[:6]))
        return kind, flags, header, data

    def framed(self, kind, header, data=b"", flags=0, spoil=False):
        """A PDU with the digests that were agreed on; `spoil` damages that of the data."""
        hlen = 8 + len(header)
        at = hlen + (4 if self.digests & 1 else 0)
        flags |= F_HDGST if self.digests & 1 else 0
        plen = at
        tail = b""
        if data:
            tail = data
            plen += len(data)
            if self.digests & 2:
                flags |= F_DDGST
                digest = crc32c(data)
                tail += bytes([digest[0] ^ 1]) + digest[1:] if spoil else digest
                plen += 4
        head = struct.pack("<BBBBI", kind, flags, hlen, at if data else 0, plen) + header
        return head + (crc32c(head) if self.digests & 1 else b"") + tail

    def send(self, opcode, sgl, nsid=0, tail=b"", data=b"", head=None, spoil=False):
        """Sends a command capsule and returns the command's number."""
        self.cid = self.cid % 0xFFF0 + 1
        word = struct.pack("<I", nsid) if head is None else head
        sqe = struct.pack("<BBH", opcode, 0x40, self.cid) + word + bytes(16) + sgl + tail.ljust(24, b"\0")
        self.sock.sendall(self.framed(CMD, sqe, data, spoil=spoil))
        return self.cid

    def supply(self, header, payload, spoil=False):
        """Answers a request for data."""
        cccid, ttag, offset, length = struct.unpack("<HHII", header[:12])
        while length:
            part = min(length, self.h2c_max)
            fields = struct.pack("<HHIII", cccid, ttag, offset, part, 0)
            flags = F_LAST if part == length else 0
            self.sock.sendall(self.framed(H2C, fields, payload[offset : offset + part], flags, spoil))
            offset, length = offset + part, length - part

    def finish(self, cid, payload=b"", want=0, spoil=False):
        """Goes on until the command is over; returns its result and what came for the host."""
        got = bytearray()
        while True:
            kind, flags, header, data = self.pdu()
            if kind == R2T:
                self.supply(header, payload, spoil)
            elif kind == C2H:
                cccid, _, offset, length = struct.unpack("<HHII", header[:12])
                if (cccid, offset, length) != (cid, len(got), len(data)):
                    raise ConnectionError(f"data for {cccid} at {offset}, {length} bytes")
                got += data
                if flags & F_SUCCESS:
                    if self.sqflow:
                        raise ConnectionError("success without completion although flow control is on")
                    break
            elif kind == RSP:
                result, head, _, number, word = struct.unpack("<QHHHH", header)
                if number != cid:
                    raise ConnectionError(f"a completion of {number}, expected {cid}")
                if word >> 1 & 0x7FF:
                    raise Failed(word >> 1 & 0x7FF, result)
                if want and len(got) != want:
                    raise ConnectionError(f"{len(got)} bytes instead of {want}")
                return result, bytes(got)
            else:
                raise ConnectionError(f"PDU {kind} is not expected")
        return 0, bytes(got)

    def connect(self, subnqn, hostnqn, qid=0, cntlid=0xFFFF, size=None, kato=0, hostid=None):
        size = (31 if qid == 0 else 127) if size is None else size
        cattr = 0 if self.sqflow else 4
        tail = struct.pack("<HHHBBI", 0, qid, size, cattr, 0, kato)
        data = (hostid or bytes(range(16))) + struct.pack("<H", cntlid)
        data = data.ljust(256, b"\0") + field(subnqn) + field(hostnqn)
        cid = self.send(0x7F, sgl_capsule(1024), head=b"\x01\0\0\0", tail=tail, data=data.ljust(1024, b"\0"))
        return self.finish(cid)[0] & 0xFFFF

    def get_property(self, offset, wide=False):
        cid = self.send(0x7F, sgl_transport(0), head=b"\x04\0\0\0", tail=struct.pack("<B3xI", wide, offset))
        return self.finish(cid)[0]

    def set_property(self, offset, value):
        tail = struct.pack("<B3xIQ", 0, offset, value)
        self.finish(self.send(0x7F, sgl_transport(0), head=b"\0\0\0\0", tail=tail))

    def enable(self):
        self.set_property(CC, 1 | 6 << 16 | 4 << 20)
        if self.get_property(CSTS) != 1:
            raise ConnectionError(f"the controller is not ready: {self.get_property(CSTS):#x}")

    def admin(self, opcode, nsid=0, tail=b"", want=0):
        return self.finish(self.send(opcode, sgl_transport(want), nsid, tail), want=want)

    def identify(self, cns, nsid=0):
        return self.admin(6, nsid, struct.pack("<I", cns), 4096)[1]

    def log_page(self, page, length, offset=0, nsid=0):
        tail = struct.pack("<IIQ", page | (length // 4 - 1) << 16, 0, offset)
        return self.admin(2, nsid, tail, length)[1]

    def close(self):
        self.sock.close()


def field(name):
    return (name if isinstance(name, bytes) else name.encode()).ljust(256, b"\0")


class Host:
    """A controller with one I/O queue, as the verbs of `_nbd.py` use a client."""

    def __init__(self, address, subnqn, hostnqn, digests=0, sqflow=True, kato=0, hostid=None):
        self.address, self.subnqn, self.hostnqn, self.digests = address, subnqn, hostnqn, digests
        self.hostid = hostid
        self.admin = Queue(address, digests, sqflow)
        self.cntlid = self.admin.connect(subnqn, hostnqn, kato=kato, hostid=hostid)
        self.admin.enable()
        granted = self.admin.admin(9, tail=struct.pack("<II", 7, 3 | 3 << 16))[0]
        if granted & 0xFFFF < 1:
            raise ConnectionError(f"{granted:#x} queues granted, 4 asked for")
        self.io = self.queue(1, sqflow)
        page = self.admin.identify(0, 1)
        self.blocks = struct.unpack("<Q", page[:8])[0]
        self.block = 1 << page[130]
        self.size = self.blocks * self.block
        controller = self.admin.identify(1)
        self.largest = 4096 << controller[77] if controller[77] else 1 << 20
        self.handle = 0

    def queue(self, qid, sqflow=True, size=None):
        queue = Queue(self.address, self.digests, sqflow)
        queue.connect(self.subnqn, self.hostnqn, qid, self.cntlid, size, hostid=self.hostid)
        return queue

    def tail(self, offset, length, flags=0):
        if offset % self.block or length % self.block:
            raise SystemExit(f"{offset} and {length} are not whole blocks of {self.block}")
        return struct.pack("<QI", offset // self.block, (length // self.block - 1) | flags)

    def read(self, offset, length, flags=0):
        parts = []
        for at in range(offset, offset + length, self.largest):
            here = min(self.largest, offset + length - at)
            cid = self.io.send(READ, sgl_transport(here), 1, self.tail(at, here, flags))
            parts.append(self.io.finish(cid, want=here)[1])
        return b"".join(parts)

    def write(self, offset, data, flags=0, spoil=False):
        for at in range(0, len(data), self.largest):
            part = data[at : at + self.largest]
            tail = self.tail(offset + at, len(part), flags)
            if len(part) <= 8192:
                cid = self.io.send(WRITE, sgl_capsule(len(part)), 1, tail, part, spoil=spoil)
                self.io.finish(cid)
            else:
                cid = self.io.send(WRITE, sgl_transport(len(part)), 1, tail)
                self.io.finish(cid, part, spoil=spoil)

    def call(self, command):
        if command != _nbd.FLUSH:
            raise SystemExit(f"no call for {command}")
        self.io.finish(self.io.send(FLUSH, sgl_transport(0), 1))

    def zeroes(self, offset, length):
        self.io.finish(self.io.send(WRITE_ZEROES, sgl_transport(0), 1, self.tail(offset, length)))

    def deallocate(self, ranges, padded=0):
        data = b"".join(struct.pack("<IIQ", 0, n // self.block, at // self.block) for at, n in ranges)
        data = data.ljust(padded, b"\0")
        tail = struct.pack("<II", len(ranges) - 1, 4)
        self.io.finish(self.io.send(DSM, sgl_capsule(len(data)), 1, tail, data))

    def reserve(self, opcode, dword, current=0, other=0):
        """A command about reservations, with its keys."""
        keys = struct.pack("<QQ", current, other)[: 8 if opcode == RELEASE else 16]
        self.io.finish(self.io.send(opcode, sgl_capsule(len(keys)), 1, struct.pack("<I", dword), keys))

    def reservation(self):
        """Type, whether it lasts, and registrants as identifier, key and whether it holds the reservation."""
        cid = self.io.send(REPORT, sgl_transport(4096), 1, struct.pack("<II", 1023, 1))
        page = self.io.finish(cid, want=4096)[1]
        count = struct.unpack("<H", page[5:7])[0]
        entries = [page[64 * (n + 1) :][:64] for n in range(count)]
        known = [(one[16:32], struct.unpack("<Q", one[8:16])[0], one[2]) for one in entries]
        return page[4], page[9], known

    def close(self):
        self.io.close()
        self.admin.set_property(CC, 0x4000 | 1 | 6 << 16 | 4 << 20)
        self.admin.close()


def expect_failure(wanted, what, action):
    try:
        action()
    except Failed as failure:
        if failure.status != wanted:
            raise SystemExit(f"{what}: status {failure.status:#x} instead of {wanted:#x}") from failure
        return
    raise SystemExit(f"{what}: it succeeded")


def check_io(host, rng):
    """Writes of all ways and sizes, to the beginning and the second half, are read back, also by another queue."""
    other = host.queue(2)
    total = 0
    for size in (4096, 8192, 12288, 65536, 131072, 135168, 1 << 20):
        at = rng.randrange(host.size // 8192, (host.size - size) // 4096) * 4096
        data = rng.randbytes(size)
        host.write(at, data, flags=FUA if rng.randrange(2) else 0)
        for flags in (0, FUA):
            if host.read(at, size, flags) != data:
                raise SystemExit(f"{size} bytes at {at} are not what was written")
        cid = other.send(READ, sgl_transport(4096), 1, host.tail(at, 4096))
        if other.finish(cid, want=4096)[1] != data[:4096]:
            raise SystemExit(f"another queue reads something else at {at}")
        total += size
    host.call(_nbd.FLUSH)
    host.write(0, b"\xff" * 65536)
    host.zeroes(4096, 8192)
    want = b"\xff" * 4096 + bytes(8192) + b"\xff" * (65536 - 12288)
    if host.read(0, 65536) != want:
        raise SystemExit("Write Zeroes did something else")
    # What deallocated blocks read as is not promised; those beside them stay. Linux sends room for 256 ranges always.
    for padded in (0, 4096):
        host.deallocate([(16384, 4096), (24576, 8192)], padded)
        if host.read(20480, 4096) != b"\xff" * 4096 or host.read(32768, 4096) != b"\xff" * 4096:
            raise SystemExit("a deallocation touched other blocks")
    expect_failure(0x80, "a range beyond the end", lambda: host.deallocate([(0, 4096), (host.size, 4096)]))
    # What is there is equal to itself, and to nothing else; it can be read without being sent.
    for size in (4096, 131072):
        there, tail = host.read(0, size), host.tail(0, size)
        compare = lambda data: host.io.finish(host.io.send(COMPARE, sgl_transport(len(data)), 1, tail), data)
        compare(there)
        expect_failure(0x285, "a comparison with something else", lambda: compare(there[:-1] + bytes([there[-1] ^ 1])))
        host.io.finish(host.io.send(VERIFY, sgl_transport(0), 1, tail))
    # Many commands at a time, answered in any order.
    cids = [host.io.send(READ, sgl_transport(4096), 1, host.tail(n * 4096, 4096)) for n in range(64)]
    seen, over = {}, set()
    while len(over) < len(cids):
        kind, flags, header, data = host.io.pdu()
        if kind == C2H:
            cid = struct.unpack("<H", header[:2])[0]
            seen[cid] = data
            over |= {cid} if flags & F_SUCCESS else set()
        elif kind == RSP:
            # The data of others may be in between, its own is not behind it.
            cid, status = struct.unpack("<HH", header[12:16])
            if status >> 1 or cid not in seen:
                raise SystemExit(f"command {cid} of many ended with {status >> 1:x}, data there: {cid in seen}")
            over.add(cid)
        else:
            raise SystemExit(f"PDU {kind} for a read")
    for n, cid in enumerate(cids[:4]):
        if seen[cid] != want[n * 4096 : (n + 1) * 4096]:
            raise SystemExit(f"command {n} of many has other data")
    return total


def check_refusals(host):
    """What is not possible is refused with the status that the specifications name."""
    admin, io = host.admin, host.io
    beyond = struct.pack("<QI", host.blocks, 0)
    expect_failure(0x80, "a read beyond the end", lambda: io.finish(io.send(READ, sgl_transport(host.block), 1, beyond)))
    wrap = struct.pack("<QI", 2**64 - 1, 7)
    expect_failure(0x80, "a read around the end", lambda: io.finish(io.send(READ, sgl_transport(host.block * 8), 1, wrap)))
    first = host.tail(0, host.block)
    expect_failure(0x0B, "another namespace", lambda: io.finish(io.send(READ, sgl_transport(host.block), 2, first)))
    expect_failure(0x0F, "a short descriptor", lambda: io.finish(io.send(READ, sgl_transport(host.block // 2), 1, first)))
    expect_failure(0x0F, "data of another length", lambda: io.finish(
        io.send(WRITE, sgl_capsule(host.block), 1, first, bytes(host.block * 2))))
    expect_failure(0x01, "an unknown I/O command", lambda: io.finish(io.send(0x7E, sgl_transport(0), 1)))
    expect_failure(0x0F, "a registration without keys", lambda: io.finish(io.send(0x0D, sgl_transport(0), 1)))
    expect_failure(0x01, "an unknown admin command", lambda: admin.admin(0xC1))
    expect_failure(0x02, "an unknown Identify", lambda: admin.identify(0x7F))
    expect_failure(0x0B, "Identify of a number that is none", lambda: admin.identify(0, 77))
    expect_failure(0x109, "an unknown log page", lambda: admin.log_page(0x99, 512))
    expect_failure(0x02, "a log page from behind its end", lambda: admin.log_page(2, 512, 516))
    expect_failure(0x02, "an unknown feature", lambda: admin.admin(10, tail=struct.pack("<I", 0x7A)))
    # Refused commands leave the queue as it was.
    host.read(0, host.block)


def check_connects(args, host):
    """Who must not connect does not."""

    def connect(subnqn=args.nqn, hostnqn=args.host, **more):
        Queue(args.address).connect(subnqn, hostnqn, **more)

    expect_failure(0x184, "a host that is not on the list", lambda: connect(hostnqn="nqn.2014-08.org.nvmexpress:uuid:no"))
    expect_failure(0x184, "discovery by it", lambda: connect(DISCOVERY, "nqn.2014-08.org.nvmexpress:uuid:no"))
    expect_failure(0x182, "an unknown subsystem", lambda: connect(subnqn="nqn.2014-08.org.nvmexpress:uuid:x"))
    expect_failure(0x182, "a name without an end", lambda: connect(subnqn=b"nqn." + b"a" * 252))
    expect_failure(0x182, "a queue of no entries", lambda: connect(size=0))
    expect_failure(0x182, "a huge queue", lambda: connect(size=0xFFFF))
    expect_failure(0x182, "a controller that is not there", lambda: connect(qid=1, cntlid=0xFF00))
    expect_failure(0x182, "another host's controller", lambda: connect(qid=2, cntlid=host.cntlid, hostid=bytes(16)))
    expect_failure(0x00C, "a queue that is connected", lambda: connect(qid=1, cntlid=host.cntlid))
    expect_failure(0x182, "a queue number too high", lambda: connect(qid=77, cntlid=host.cntlid))


def check_identity(host, args):
    controller = host.admin.identify(1)
    if controller[768:1024].rstrip(b"\0").decode() != args.nqn:
        raise SystemExit(f"the controller names another subsystem: {controller[768:1024]}")
    if struct.unpack("<I", host.admin.identify(2)[:4])[0] != 1:
        raise SystemExit("namespace 1 is not active")
    kind, length, _, uuid = struct.unpack("<BBH16s", host.admin.identify(3, 1)[:20])
    if (kind, length) != (3, 16) or uuid == bytes(16):
        raise SystemExit("the namespace has no UUID")
    if host.admin.log_page(2, 512, nsid=0xFFFFFFFF)[3] != 100:
        raise SystemExit("the health page shows no spare")
    host.admin.log_page(3, 512)
    return uuid.hex()


def check_discovery(args):
    queue = Queue(args.address)
    queue.connect(DISCOVERY, args.host)
    queue.enable()
    if queue.identify(1)[111] != 2:
        raise SystemExit("the discovery controller calls itself something else")
    head = queue.log_page(0x70, 1024)
    records = struct.unpack("<Q", head[8:16])[0]
    page = queue.log_page(0x70, 1024 * (records + 1))
    names = []
    for n in range(records):
        entry = page[1024 * (n + 1) :][:1024]
        if entry[0] != 3 or entry[2] != 2:
            raise SystemExit(f"an entry of transport {entry[0]} and type {entry[2]}")
        where = entry[512:768].decode().strip() + ":" + entry[32:64].decode().strip()
        if where != args.address:
            raise SystemExit(f"discovery says {where} instead of {args.address}")
        names.append(entry[256:512].rstrip(b"\0").decode())
    if args.nqn not in names:
        raise SystemExit(f"discovery tells of {names} only")
    queue.close()


def check_damage(args):
    """Damaged data fails its command, and nothing else; a damaged header ends the connection."""
    host = Host(args.address, args.nqn, args.host, digests=3)
    before = host.read(0, 131072)
    for size in (4096, 131072):
        expect_failure(0x22, "a write that was damaged", lambda: host.write(0, b"\xee" * size, spoil=True))
    if host.read(0, 131072) != before:
        raise SystemExit("a damaged write changed something")
    host.io.sock.sendall(struct.pack("<BBBBI", CMD, F_HDGST, 72, 0, 76) + bytes(68))
    try:
        host.io.pdu()
    except Ended as end:
        if end.args[0][0] != 3:
            raise SystemExit(f"a damaged header: {end.args[0]}") from end
    else:
        raise SystemExit("a damaged header was accepted")
    host.close()


def check(args):
    rng = random.Random(args.seed)
    done = []
    for digests, sqflow in ((0, True), (1, True), (2, True), (3, False)):
        host = Host(args.address, args.nqn, args.host, digests, sqflow)
        done.append(check_io(host, rng))
        check_refusals(host)
        uuid = check_identity(host, args)
        host.close()
    check_damage(args)
    host = Host(args.address, args.nqn, args.host)
    check_connects(args, host)
    host.close()
    check_discovery(args)
    print(f"{sum(done)} bytes written and read back in {len(done)} kinds of connections; namespace {uuid}")


def spaces(queue):
    """Namespaces and how they are reached, as one line."""
    active = [n for n in struct.unpack("<1024I", queue.identify(2)) if n]
    states = {1: "optimized", 3: "inaccessible"}
    page = queue.log_page(0x0C, 16 + 36 * len(active))
    groups = [struct.unpack("<IIQB15xI", page[at : at + 36]) for at in range(16, len(page), 36)]
    if [group[4] for group in groups] != active or struct.unpack("<H", page[8:10])[0] != len(active):
        raise SystemExit(f"namespaces {active}, but access to {groups}")
    return ", ".join(f"{group[4]} {states[group[3]]}" for group in groups)


def namespaces(args):
    """Says which namespaces there are; with --progress, makes that file and then waits to be told of another one."""
    host = Host(args.address, args.nqn, args.host)
    if args.progress:
        host.admin.admin(9, tail=struct.pack("<II", 0x0B, 1 << 8))
        cid = host.admin.send(0x0C, sgl_transport(0))
        with open(args.progress, "w") as file:
            file.write("asked")
        result = host.admin.finish(cid)[0]
        changed = [n for n in struct.unpack("<1024I", host.admin.log_page(4, 4096)) if n]
        print(f"told {result:#x}, changed {changed}")
    print(f"namespaces: {spaces(host.admin)}")
    host.close()


def two_hosts(args):
    """Two hosts of different identifiers under one name, and what they write."""
    ids = [bytes([number] * 16) for number in (1, 2)]
    return [Host(args.address, args.nqn, args.host, args.digests, hostid=hostid) for hostid in ids], ids


PLACE = 40000 * 4096


def reserve(args):
    """One host reserves the namespace, so that it lasts; the other is kept out."""
    (one, two), ids = two_hosts(args)
    one.reserve(REGISTER, 3 << 30, other=0x11)
    one.reserve(ACQUIRE, 1 << 8, 0x11)
    if one.reservation() != (1, 1, [(ids[0], 0x11, 1)]):
        raise SystemExit(f"the report says {one.reservation()}")
    one.write(PLACE, bytes([1]) * 4096)
    expect_failure(CONFLICT, "a write that is kept out", lambda: two.write(PLACE, bytes(4096)))
    if two.read(PLACE, 4096) != bytes([1]) * 4096:
        raise SystemExit("another host reads something else")
    one.close()
    two.close()
    print("reserved")


def reserved(args):
    """It is reserved yet; then the other host takes over."""
    (one, two), ids = two_hosts(args)
    if one.reservation() != (1, 1, [(ids[0], 0x11, 1)]):
        raise SystemExit(f"after a restart the report says {one.reservation()}")
    expect_failure(CONFLICT, "a write that is kept out", lambda: two.write(PLACE, bytes(4096)))
    one.write(PLACE, bytes([2]) * 4096)
    two.reserve(REGISTER, 0, other=0x22)
    two.reserve(ACQUIRE, 2 | 2 << 8, 0x22, 0x11)
    expect_failure(CONFLICT, "a write after the preemption", lambda: one.write(PLACE, bytes(4096)))
    expect_failure(CONFLICT, "a read after it", lambda: one.read(PLACE, 4096))
    if struct.unpack("<QBB", one.admin.log_page(0x80, 64)[:10]) != (1, 1, 0):
        raise SystemExit("the other one was not told")
    if two.read(PLACE, 4096) != bytes([2]) * 4096:
        raise SystemExit("something else is there")
    if two.reservation() != (2, 1, [(ids[1], 0x22, 1)]):
        raise SystemExit(f"after the preemption the report says {two.reservation()}")
    one.close()
    two.close()
    print("preempted")


def free(args):
    """Nothing is reserved."""
    (one, two), _ = two_hosts(args)
    if one.reservation() != (0, 0, []):
        raise SystemExit(f"the report says {one.reservation()}")
    one.write(PLACE, bytes(4096))
    two.write(PLACE, bytes(4096))
    one.close()
    two.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("check", "fill", "verify", "steady", "namespaces", "reserve", "reserved", "free"))
    parser.add_argument("--address", required=True, help="address:port")
    parser.add_argument("--nqn", required=True, help="name of the subsystem")
    parser.add_argument("--host", required=True, help="name of this host")
    parser.add_argument("--digests", type=int, default=0, help="1 for headers, 2 for data, 3 for both")
    parser.add_argument("--model", help="file that remembers what was written")
    parser.add_argument("--windows", help="first:count,... in blocks of 4 KiB")
    parser.add_argument("--forgive", help="first:count,... in blocks of 4 KiB, which verify does not compare")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", help="file whose appearance ends this")
    parser.add_argument("--progress", help="file that tells how far this is")
    args = parser.parse_args()
    args.socket, args.export = args.address, args.nqn
    _nbd.Client = lambda address, nqn: Host(address, nqn, args.host, args.digests)
    verbs = {"check": check, "fill": _nbd.fill, "verify": _nbd.verify, "steady": _nbd.steady,
             "namespaces": namespaces, "reserve": reserve, "reserved": reserved, "free": free}
    try:
        verbs[args.verb](args)
    except (Failed, Ended, ConnectionError, TimeoutError) as error:
        sys.exit(f"{args.verb}: {error!r}")


if __name__ == "__main__":
    main()
