#!/usr/bin/env python3
"""A way to a place that can be closed by ending this: carries bytes between whoever connects to LISTEN and TARGET.

Usage: _portal.py LISTEN TARGET FILE. Its own address is in FILE once it is open.
"""

import selectors
import socket
import sys


def place(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main():
    listen, target, told = sys.argv[1:]
    door = socket.create_server(place(listen))
    with open(told, "w", encoding="ascii") as file:
        file.write("%s:%d" % door.getsockname())
    ends = selectors.DefaultSelector()
    ends.register(door, selectors.EVENT_READ)
    while True:
        for key, _ in ends.select():
            if key.fileobj is door:
                near, _ = door.accept()
                far = socket.create_connection(place(target))
                for one, other in ((near, far), (far, near)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    ends.register(one, selectors.EVENT_READ, other)
                continue
            if key.fileobj.fileno() < 0:
                continue
            try:
                data = key.fileobj.recv(1 << 16)
                key.data.sendall(data)
            except OSError:
                data = b""
            if not data:
                for end in (key.fileobj, key.data):
                    ends.unregister(end)
                    end.close()


main()
