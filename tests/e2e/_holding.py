#!/usr/bin/env python3
"""A target that is slow to notice that its host is gone: a proxy before one that is not.

Usage: _holding.py LISTEN TARGET FOLDER SECONDS. Its own address is in FOLDER/place once it is open.

Bytes are carried both ways until FOLDER/hold exists. From then on, on every connection that is open by then, what comes
from the host is kept; FOLDER/held exists once a whole command with a block of data is among it. When the host is gone the
target is not told so: it gets signs of life, as the host gave them, and SECONDS later what was kept. FOLDER/landed exists
once it has answered that. Connections that are made later are not disturbed.
"""

import os
import select
import socket
import sys
import threading
import time

KEEP_ALIVE = 0x18
CAPSULE = 4
BLOCK = 4096


def place(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def touch(path):
    with open(path, "w", encoding="ascii"):
        pass


def carry(near, far, folder, seconds):
    """Serves one connection until both ends are gone."""
    kept, alive, holding = b"", b"", False
    while True:
        holding = holding or os.path.exists(folder + "/hold")
        for end in select.select([near, far], [], [], 0.01)[0]:
            try:
                data = end.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data and end is near:
                return late(far, kept, alive, folder, seconds) if holding else far.close()
            if not data:
                return near.close()
            if end is far:
                near.sendall(data)
            elif holding:
                kept += data
                if len(kept) > BLOCK:
                    touch(folder + "/held")
            else:
                # A sign of life is a capsule of its own: nothing else is sent with it on an idle queue.
                if data[0] == CAPSULE and data[8] == KEEP_ALIVE and len(data) == data[4]:
                    alive = data
                far.sendall(data)


def late(far, kept, alive, folder, seconds):
    """The host is gone, and the target does not know."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if alive:
            far.sendall(alive)
        if select.select([far], [], [], 0.5)[0] and not far.recv(1 << 16):
            return
    if len(kept) > BLOCK:
        far.sendall(kept)
        if far.recv(1 << 16):
            touch(folder + "/landed")
    # The others of the association end when this is over.
    time.sleep(1)
    far.close()


def main():
    listen, target, folder, seconds = sys.argv[1:]
    door = socket.create_server(place(listen))
    with open(folder + "/place.new", "w", encoding="ascii") as file:
        file.write("%s:%d" % door.getsockname())
    os.rename(folder + "/place.new", folder + "/place")
    while True:
        near, _ = door.accept()
        far = socket.create_connection(place(target))
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=carry, args=(near, far, folder, float(seconds)), daemon=True).start()


main()
