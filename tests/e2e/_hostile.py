#!/usr/bin/env python3
"""NBD clients that misbehave, each on connections of its own, and what the server must do about each.

An attack passes when the server answers with an error, or ends the connection, within the time allowed here.
That the daemon lives on, and that others are served meanwhile, is for the script that runs this to check.
"""

import argparse
import os
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _nbd import (  # noqa: E402 (the folder has to be known first)
    BLOCK,
    DISCONNECT,
    MAGIC_REQUEST,
    OPT_GO,
    READ,
    WRITE,
    Client,
    Refused,
)

PATIENCE = 20  # seconds; the server gives a handshake ten
OPT_EXPORT_NAME, OPT_LIST = 1, 3
EINVAL, ENOSPC, EOVERFLOW, ENOTSUP = 22, 28, 75, 95


def raw(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE)
    sock.connect(path)
    return sock


def ends(sock, what):
    """Whether the server ends the connection; whatever it says before is ignored."""
    try:
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        raise SystemExit(f"{what}: the server neither answered nor ended the connection in {PATIENCE} s")
    except ConnectionError:
        pass
    sock.close()


def push(sock, data):
    """Sends as much as the server takes."""
    try:
        sock.sendall(data)
    except (ConnectionError, BrokenPipeError):
        pass


def patient(args):
    """A client that waits for a place: connections that were given up keep theirs until their I/O is over."""
    for _ in range(PATIENCE * 20):
        try:
            return Client(args.socket, args.export, PATIENCE)
        except (Refused, OSError):
            time.sleep(0.05)
    raise SystemExit(f"no connection is free even {PATIENCE} s after others were given up")


class Bare(Client):
    """A client in the option phase."""

    def go(self, export):
        pass


def refuses(client, what, command, offset, length, data=b"", flags=0, wanted=(EINVAL,)):
    """The request must be answered with an error, and the connection stay usable; or it may be ended."""
    sent = client.send(command, offset, length, data, flags)
    try:
        error, handle = client.reply()
    except TimeoutError:
        raise SystemExit(f"{what}: no reply in {PATIENCE} s")
    except ConnectionError:
        return False
    if handle != sent or error not in wanted:
        raise SystemExit(f"{what}: error {error} to request {handle}, expected one of {wanted} to {sent}")
    return True


def noise(args, rng):
    """Random bytes instead of a handshake."""
    for _ in range(20):
        sock = raw(args.socket)
        push(sock, rng.randbytes(rng.randrange(1, 5000)))
        sock.shutdown(socket.SHUT_WR)
        ends(sock, "noise")
    sock = raw(args.socket)
    push(sock, b"GET / HTTP/1.1\r\nHost: strake\r\n\r\n")
    ends(sock, "a browser")


def silence(args, rng):
    """Says nothing at all, or stops in the middle of an option: the handshake has an end."""
    quiet = [raw(args.socket) for _ in range(4)]
    half = Bare(args.socket, args.export, PATIENCE)
    half.sock.sendall(struct.pack(">8sI", b"IHAVEOPT", OPT_GO))
    for sock in quiet + [half.sock]:
        ends(sock, "silence")


def options(args, rng):
    """Options that are too long, too many, unknown, or lie about their lengths."""
    for length in (0xFFFFFFFF, 1 << 24, 70000):
        client = Bare(args.socket, args.export, PATIENCE)
        push(client.sock, struct.pack(">8sII", b"IHAVEOPT", OPT_GO, length) + bytes(70000))
        client.sock.shutdown(socket.SHUT_WR)
        ends(client.sock, f"an option of {length} bytes")
    for name_length, body in ((0xFFFFFFFF, bytes(8)), (5000, bytes(5002)), (3, b"\xff\xfe\xfd\0\0"), (0, b"\0\x09\0")):
        client = Bare(args.socket, args.export, PATIENCE)
        client.option(OPT_GO, struct.pack(">I", name_length) + body)
        try:
            _, kind, _ = client.option_reply()
            if not kind & 1 << 31:
                raise SystemExit(f"NBD_OPT_GO with a name of {name_length} bytes was answered {kind}")
        except ConnectionError:
            pass
        client.sock.close()
    client = Bare(args.socket, args.export, PATIENCE)
    push(client.sock, struct.pack(">8sII", b"IHAVEOPT", 0xABCD, 0) * 10000)
    ends(client.sock, "ten thousand unknown options")
    client = Bare(args.socket, args.export, PATIENCE)
    push(client.sock, struct.pack(">8sII", b"NOTANOPT", OPT_LIST, 0))
    ends(client.sock, "an option without its magic")
    client = Bare(args.socket, args.export, PATIENCE)
    client.option(OPT_EXPORT_NAME, b"there is no such export")
    ends(client.sock, "an unknown export by NBD_OPT_EXPORT_NAME")
    try:
        Client(args.socket, "there is no such export", PATIENCE)
        raise SystemExit("an export that is not there was opened")
    except Refused:
        pass


def requests(args, rng):
    """Requests that no client has any business sending."""

    def check(what, command, offset, length, data=b"", flags=0, wanted=(EINVAL,)):
        client = Client(args.socket, args.export, PATIENCE)
        if refuses(client, what, command, offset, length, data, flags, wanted):
            client.read(0, BLOCK)
            client.close()

    size = Client(args.socket, args.export, PATIENCE).size
    beyond = (EINVAL, ENOSPC)
    check("read at the end", READ, size, BLOCK, wanted=beyond)
    check("read across the end", READ, size - BLOCK, 2 * BLOCK, wanted=beyond)
    check("read at the end of 64 bits", READ, (1 << 64) - BLOCK, 2 * BLOCK, wanted=beyond)
    check("write at the end", WRITE, size, BLOCK, bytes(BLOCK), wanted=beyond)
    check("read of 4 GiB", READ, 0, 0xFFFFF000, wanted=(EINVAL, EOVERFLOW))
    check("read off the blocks", READ, 1, BLOCK)
    check("read of half a block", READ, 0, 100)
    check("write off the blocks", WRITE, size // 2 + 7, 100, bytes(100))
    check("an unknown command", 99, 0, 0, wanted=(EINVAL, ENOTSUP))
    check("unknown flags", READ, 0, BLOCK, flags=0x8000)
    # A write that announces 4 GiB cannot be skipped for ever: the connection may end.
    client = Client(args.socket, args.export, PATIENCE)
    push(client.sock, struct.pack(">IHHQQI", MAGIC_REQUEST, 0, WRITE, 1, 0, 0xFFFFFFFF) + bytes(1 << 20))
    client.sock.shutdown(socket.SHUT_WR)
    ends(client.sock, "a write of 4 GiB")
    client = Client(args.socket, args.export, PATIENCE)
    push(client.sock, rng.randbytes(4096))
    client.sock.shutdown(socket.SHUT_WR)
    ends(client.sock, "noise after the handshake")


def unread(args, rng):
    """Asks for a lot and reads nothing, until the file appears. The server may stop taking requests from it."""
    greedy = []
    for _ in range(4):
        client = patient(args)
        client.sock.settimeout(0.5)
        try:
            for n in range(20000):
                client.send(READ, n % 64 * (1 << 20), 1 << 20)
        except (TimeoutError, ConnectionError):
            pass
        greedy.append(client)
    with open(args.progress, "w") as file:
        file.write("stopped reading")
    waiting = threading.Event()
    while not os.path.exists(args.until):
        waiting.wait(0.1)
    for client in greedy:
        client.sock.close()


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def midwrite(args, rng):
    """Goes away in the middle of writes, with reads outstanding, and without waiting for replies."""
    size = patient(args).size
    for turn in range(60):
        client = patient(args)
        # The second half of the export belongs to the attacks.
        at = size // 2 + rng.randrange(1000) * BLOCK
        for _ in range(rng.randrange(8)):
            client.send(WRITE, at, 16 * BLOCK, bytes(16 * BLOCK))
            client.send(READ, at, 16 * BLOCK)
        head = struct.pack(">IHHQQI", MAGIC_REQUEST, 0, WRITE, 77, at, 256 * BLOCK)
        push(client.sock, (head + bytes(256 * BLOCK))[: rng.randrange(1, len(head) + 256 * BLOCK)])
        if turn % 3 == 0:
            push(client.sock, struct.pack(">IHHQQI", MAGIC_REQUEST, 0, DISCONNECT, 78, 0, 0))
        reset(client.sock) if turn % 2 else client.sock.close()


def crowd(args, rng):
    """More connections than anybody needs; whatever the server takes, it gives free again."""
    taken = []
    for _ in range(1200):
        try:
            sock = raw(args.socket)
        except (ConnectionError, OSError):
            break
        sock.settimeout(PATIENCE)
        taken.append(sock)
    for sock in taken:
        reset(sock)
    patient(args).close()
    print(f"{len(taken)} connections")


ATTACKS = {f.__name__: f for f in (noise, silence, options, requests, unread, midwrite, crowd)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attack", choices=sorted(ATTACKS))
    parser.add_argument("--socket", required=True)
    parser.add_argument("--export", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--progress", help="file that says that the attack is under way")
    parser.add_argument("--until", help="file whose appearance ends it")
    args = parser.parse_args()
    ATTACKS[args.attack](args, random.Random(args.seed))


if __name__ == "__main__":
    main()
