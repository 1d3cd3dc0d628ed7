#!/usr/bin/env python3
"""A way to a place that can be closed by ending this: carries bytes between whoever connects to LISTEN and TARGET.

Usage: _portal.py LISTEN TARGET FILE. Its own address is in FILE once it is open.
"""

import socket
import sys
import threading


def place(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def carry(one, other):
    """Carries bytes from one to the other until either is over, and ends both."""
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
    except OSError:
        pass
    for end in (one, other):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def main():
    listen, target, told = sys.argv[1:]
    door = socket.create_server(place(listen))
    with open(told, "w", encoding="ascii") as file:
        file.write("%s:%d" % door.getsockname())
    while True:
        near, _ = door.accept()
        far = socket.create_connection(place(target))
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Two threads for each connection: with one for all, two sides that are both full wait for each other.
            threading.Thread(target=carry, args=(one, other), daemon=True).start()


main()
