#!/usr/bin/env python3
"""A small NBD client that remembers what was acknowledged.

It speaks the fixed newstyle handshake, NBD_OPT_GO and simple replies (the NBD protocol's doc/proto.md), which
is all that the end-to-end scripts need. Every 4 KiB block it writes names itself and the write it came from:
whatever is read back tells which write it was, or that it was none.
"""

import argparse
import json
import os
import pickle
import random
import signal
import socket
import struct
import sys
import threading

BLOCK = 4096
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1
OPT_GO = 7
INFO_EXPORT, INFO_BLOCK_SIZE = 0, 3
REPLY_ACK, REPLY_INFO = 1, 3
MAGIC_OPTION_REPLY = 0x3E889045565A9
MAGIC_REQUEST = 0x25609513
MAGIC_SIMPLE_REPLY = 0x67446698


class Refused(Exception):
    """The server answered with an error."""


class Client:
    """One connection, in transmission phase once made."""

    def __init__(self, path, export, timeout=60):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.handle = 0
        self.greet()
        self.go(export)

    def exactly(self, count):
        """The next `count` bytes; ConnectionError when the server ends before."""
        parts = []
        while count:
            part = self.sock.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def greet(self):
        magic, options, flags = struct.unpack(">8s8sH", self.exactly(18))
        if magic != b"NBDMAGIC" or options != b"IHAVEOPT" or not flags & 1:
            raise ConnectionError(f"not a fixed newstyle server: {magic} {options} {flags}")
        self.sock.sendall(struct.pack(">I", 3 & (flags | 1)))

    def option(self, number, data=b""):
        self.sock.sendall(struct.pack(">8sII", b"IHAVEOPT", number, len(data)) + data)

    def option_reply(self):
        magic, option, kind, length = struct.unpack(">QIII", self.exactly(20))
        if magic != MAGIC_OPTION_REPLY or length > 1 << 20:
            raise ConnectionError(f"a damaged option reply: magic {magic:x}, {length} bytes")
        return option, kind, self.exactly(length)

    def go(self, export):
        name = export.encode()
        self.option(OPT_GO, struct.pack(">I", len(name)) + name + struct.pack(">HH", 1, INFO_BLOCK_SIZE))
        self.block_min = 1
        while True:
            _, kind, data = self.option_reply()
            if kind == REPLY_ACK:
                return
            if kind & 1 << 31:
                raise Refused(f"NBD_OPT_GO answered {kind:#x}: {data.decode(errors='replace')}")
            if kind == REPLY_INFO and data[:2] == struct.pack(">H", INFO_EXPORT):
                self.size, self.flags = struct.unpack(">QH", data[2:12])
            elif kind == REPLY_INFO and data[:2] == struct.pack(">H", INFO_BLOCK_SIZE):
                self.block_min, self.block_preferred, self.block_max = struct.unpack(">III", data[2:14])

    def send(self, command, offset, length, data=b"", flags=0):
        """Sends a request and returns its handle."""
        self.handle += 1
        head = struct.pack(">IHHQQI", MAGIC_REQUEST, flags, command, self.handle, offset, length)
        self.sock.sendall(head + data)
        return self.handle

    def reply(self):
        """The next reply's error and handle; data of a read must be taken with `exactly`."""
        magic, error, handle = struct.unpack(">IIQ", self.exactly(16))
        if magic != MAGIC_SIMPLE_REPLY:
            raise ConnectionError(f"a damaged reply: magic {magic:x}")
        return error, handle

    def call(self, command, offset=0, length=0, data=b"", flags=0):
        """One request and its answer."""
        sent = self.send(command, offset, length, data, flags)
        error, handle = self.reply()
        if handle != sent:
            raise ConnectionError(f"reply to {handle}, expected {sent}")
        if error:
            raise Refused(f"command {command} at {offset}, {length} bytes: error {error}")
        return self.exactly(length) if command == READ else b""

    def read(self, offset, length):
        return self.call(READ, offset, length)

    def write(self, offset, data, flags=0):
        self.call(WRITE, offset, len(data), data, flags)

    def close(self):
        try:
            self.send(DISCONNECT, 0, 0)
        finally:
            self.sock.close()


def pattern(sequence, first, count):
    """What write `sequence` puts into `count` blocks from block `first`; write 0 is what was there before."""
    if sequence == 0:
        return bytes(count * BLOCK)
    return b"".join(struct.pack("<QQ", sequence, first + n) * (BLOCK // 16) for n in range(count))


class Model:
    """What every block may hold."""

    def __init__(self):
        self.acknowledged = {}  # block -> write
        self.open = []  # (first block, blocks, write): not acknowledged, so old or new
        self.windows = set()  # (first block, blocks) ever written to
        self.sequence = 0

    @classmethod
    def load(cls, path):
        if not os.path.exists(path):
            return cls()
        with open(path, "rb") as file:
            return pickle.load(file)

    def save(self, path):
        with open(path + ".next", "wb") as file:
            pickle.dump(self, file)
        os.rename(path + ".next", path)

    def admissible(self, block):
        """Writes whose data the block may hold."""
        writes = {self.acknowledged.get(block, 0)}
        writes.update(w for first, count, w in self.open if first <= block < first + count)
        return writes

    def settle(self, block, data):
        """Checks what was read of a block, which decides an open write there for good."""
        for write in sorted(self.admissible(block)):
            if data == pattern(write, block, 1):
                self.acknowledged[block] = write
                return
        found = struct.unpack("<QQ", data[:16])
        raise SystemExit(
            f"LOST DATA in block {block} (byte {block * BLOCK}): expected write "
            f"{' or '.join(map(str, sorted(self.admissible(block))))}, found write {found[0]} of block {found[1]}"
            f"{'' if data == pattern(found[0], found[1], 1) else ', torn within the block'}"
        )


def parse_windows(text):
    return [tuple(int(n) for n in part.split(":")) for part in text.split(",")]


class Writer:
    """Keeps random writes in flight until the server is gone."""

    DEPTH = 16
    BLOCKS_MAX = 64

    def __init__(self, client, model, windows, rng):
        self.client, self.model, self.windows, self.rng = client, model, windows, rng
        self.flight = {}
        self.acknowledged = 0
        self.bytes = 0
        model.windows.update(windows)

    def choose(self):
        """A range that overlaps no write in flight, whose order nobody could tell."""
        while True:
            first, blocks = self.rng.choice(self.windows)
            count = min(blocks, self.rng.choice((1, 1, 2, 3, 8, 16, self.BLOCKS_MAX)))
            at = first + self.rng.randrange(blocks - count + 1)
            if all(at + count <= f or f + n <= at for f, n, _ in self.flight.values()):
                return at, count

    def issue(self):
        at, count = self.choose()
        self.model.sequence += 1
        write = self.model.sequence
        # Noted before the first byte leaves: a request that was cut off may still have been carried out.
        self.flight[self.client.handle + 1] = (at, count, write)
        flags = FUA if self.rng.randrange(8) == 0 else 0
        data = pattern(write, at, count)
        self.client.send(WRITE, at * BLOCK, len(data), data, flags)

    def take(self):
        error, handle = self.client.reply()
        at, count, write = self.flight.pop(handle)
        if error:
            raise SystemExit(f"write {write} of {count} blocks at {at} failed with error {error}")
        self.acknowledged += 1
        self.bytes += count * BLOCK
        for block in range(at, at + count):
            self.model.acknowledged[block] = write

    def until_broken(self, after, kill):
        """Writes; after `after` acknowledgements `kill` runs once, while writing goes on."""
        try:
            while True:
                while len(self.flight) < self.DEPTH:
                    self.issue()
                self.take()
                if self.acknowledged == after:
                    kill()
        except (ConnectionError, BrokenPipeError):
            pass
        # Replies that were sent before the end are acknowledgements.
        try:
            while self.flight:
                self.take()
        except (ConnectionError, OSError):
            pass
        self.model.open.extend(self.flight.values())


def crash(args):
    """Writes until the daemon, killed by this very process at a random moment, is gone."""
    rng = random.Random(args.seed)
    model = Model.load(args.model)
    writer = Writer(Client(args.socket, args.export), model, parse_windows(args.windows), rng)
    delay = rng.random() * 0.03

    def kill():
        threading.Timer(delay, os.kill, (args.kill, signal.SIGKILL)).start()

    writer.until_broken(args.after, kill)
    model.save(args.model)
    if writer.acknowledged < args.after:
        raise SystemExit(f"the server was gone after {writer.acknowledged} writes, before it was killed")
    print(f"{writer.acknowledged} writes ({writer.bytes} bytes) acknowledged, {len(writer.flight)} cut off")


def fill(args):
    """Writes every window from its first block to its last, flushes, and remembers that."""
    model = Model.load(args.model)
    client = Client(args.socket, args.export)
    written = 0
    for first, blocks in parse_windows(args.windows):
        model.windows.add((first, blocks))
        for at in range(first, first + blocks, Writer.BLOCKS_MAX):
            count = min(Writer.BLOCKS_MAX, first + blocks - at)
            model.sequence += 1
            client.write(at * BLOCK, pattern(model.sequence, at, count))
            for block in range(at, at + count):
                model.acknowledged[block] = model.sequence
            written += count * BLOCK
    client.call(FLUSH)
    client.close()
    model.save(args.model)
    print(f"{written} bytes written")


def verify(args):
    """Reads every window ever written to; writes that were cut off become old or new, and stay so.

    Blocks in the windows of `--forgive` may hold anything: whoever accepted the loss was told so.
    """
    model = Model.load(args.model)
    client = Client(args.socket, args.export)
    forgiven = parse_windows(args.forgive) if args.forgive else []
    checked = 0
    for first, blocks in sorted(model.windows):
        for at in range(first, first + blocks, 256):
            count = min(256, first + blocks - at)
            data = client.read(at * BLOCK, count * BLOCK)
            for n in range(count):
                if any(f <= at + n < f + some for f, some in forgiven):
                    continue
                model.settle(at + n, data[n * BLOCK : (n + 1) * BLOCK])
                checked += BLOCK
    model.open.clear()
    model.save(args.model)
    client.close()
    print(f"{checked} bytes verified")


def steady(args):
    """Random writes and verified reads in one window until a file appears; any error ends it. With `--model`, what was
    written is remembered."""
    rng = random.Random(args.seed)
    client = Client(args.socket, args.export)
    first, blocks = parse_windows(args.windows)[0]
    model = Model()
    model.windows.add((first, blocks))
    turns = 0
    while not os.path.exists(args.until):
        count = rng.choice((1, 2, 7, 32))
        at = first + rng.randrange(blocks - count + 1)
        model.sequence += 1
        client.write(at * BLOCK, pattern(model.sequence, at, count))
        for block in range(at, at + count):
            model.acknowledged[block] = model.sequence
        at = first + rng.randrange(blocks - 32 + 1)
        data = client.read(at * BLOCK, 32 * BLOCK)
        for n in range(32):
            model.settle(at + n, data[n * BLOCK : (n + 1) * BLOCK])
        turns += 1
        if turns % 20 == 0:
            with open(args.progress + ".next", "w") as file:
                file.write(str(turns))
            os.rename(args.progress + ".next", args.progress)
    client.close()
    if args.model:
        model.save(args.model)
    print(f"{turns} writes, {turns * 32 * BLOCK} bytes verified, 0 errors")


def idle(args):
    """Connects, and then says nothing until a file appears."""
    client = Client(args.socket, args.export)
    with open(args.progress, "w") as file:
        file.write("connected")
    waiting = threading.Event()
    while not os.path.exists(args.until):
        waiting.wait(0.2)
    client.close()


def info(args):
    client = Client(args.socket, args.export)
    print(json.dumps({"size": client.size, "flags": client.flags, "block_min": client.block_min}))
    client.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("crash", "fill", "verify", "steady", "idle", "info"))
    parser.add_argument("--socket", required=True)
    parser.add_argument("--export", required=True)
    parser.add_argument("--model", help="file that remembers what was written")
    parser.add_argument("--windows", help="first:count,... in blocks of 4 KiB")
    parser.add_argument("--forgive", help="first:count,... in blocks of 4 KiB, which verify does not compare")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--after", type=int, default=100, help="acknowledged writes before the kill")
    parser.add_argument("--kill", type=int, help="process to kill")
    parser.add_argument("--until", help="file whose appearance ends this")
    parser.add_argument("--progress", help="file that tells how far this is")
    args = parser.parse_args()
    verbs = {"crash": crash, "fill": fill, "verify": verify, "steady": steady, "idle": idle, "info": info}
    try:
        verbs[args.verb](args)
    except (Refused, ConnectionError, TimeoutError) as error:
        sys.exit(f"{args.verb}: {error}")


if __name__ == "__main__":
    main()
