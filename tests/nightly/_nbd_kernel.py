#!/usr/bin/env python3
"""The kernel's NBD client, told over netlink what to do (linux/nbd-netlink.h, linux/genetlink.h).

nbd-client of Debian 12 cannot ask for what matters here: that the kernel keeps requests while the server is gone, and
sends them again over another connection (`dead_conn_timeout` and NBD_CMD_RECONFIGURE).
"""

import argparse
import errno
import os
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import _nbd

# linux/netlink.h and linux/genetlink.h
NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK = 1, 4
NLMSG_ERROR = 2
GENL_ID_CTRL = 0x10
CTRL_CMD_GETFAMILY = 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_ATTR_MCAST_GROUPS = 1, 2, 7
CTRL_ATTR_MCAST_GRP_ID = 2
SOL_NETLINK, NETLINK_ADD_MEMBERSHIP = 270, 1
NLA_F_NESTED, NLA_TYPE_MASK = 0x8000, 0x3FFF

# linux/nbd-netlink.h
CONNECT, DISCONNECT, RECONFIGURE, LINK_DEAD = 1, 2, 3, 4
INDEX, SIZE_BYTES, BLOCK_SIZE_BYTES, TIMEOUT, SERVER_FLAGS, CLIENT_FLAGS, SOCKETS, DEAD_CONN_TIMEOUT = range(1, 9)
SOCK_ITEM, SOCK_FD = 1, 1


def attribute(kind, data):
    head = struct.pack("=HH", 4 + len(data), kind)
    return head + data + bytes(-len(data) % 4)


def u32(kind, value):
    return attribute(kind, struct.pack("=I", value))


def u64(kind, value):
    return attribute(kind, struct.pack("=Q", value))


def attributes(data):
    """Kind and content of each attribute in `data`."""
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        yield kind & NLA_TYPE_MASK, data[at + 4 : at + length]
        at += (max(length, 4) + 3) & ~3


class Netlink:
    """Generic netlink to the nbd module."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.sock.bind((0, 0))
        self.sequence = 0
        found = self.call(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, attribute(CTRL_ATTR_FAMILY_NAME, b"nbd\0"), 2)
        found = dict(attributes(found))
        self.family = struct.unpack("=H", found[CTRL_ATTR_FAMILY_ID])[0]
        groups = [dict(attributes(group)) for _, group in attributes(found[CTRL_ATTR_MCAST_GROUPS])]
        self.group = struct.unpack("=I", groups[0][CTRL_ATTR_MCAST_GRP_ID])[0]

    def call(self, family, command, data, version=1):
        """One request; the attributes of its answer. OSError as the kernel refused it."""
        self.sequence += 1
        body = struct.pack("=BBH", command, version, 0) + data
        head = struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST | NLM_F_ACK, self.sequence, 0)
        self.sock.send(head + body)
        answer = b""
        while True:
            for kind, sequence, content in self.messages():
                if sequence != self.sequence:
                    continue
                if kind == NLMSG_ERROR:
                    code = struct.unpack_from("=i", content)[0]
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    return answer
                answer = content[4:]

    def messages(self):
        data = self.sock.recv(1 << 16)
        at = 0
        while at + 16 <= len(data):
            length, kind, _, sequence, _ = struct.unpack_from("=IHHII", data, at)
            yield kind, sequence, data[at + 16 : at + length]
            at += (length + 3) & ~3

    def nbd(self, command, data):
        return self.call(self.family, command, data)


def sockets(fd):
    item = attribute(SOCK_ITEM | NLA_F_NESTED, u32(SOCK_FD, fd))
    return attribute(SOCKETS | NLA_F_NESTED, item)


class Device:
    """/dev/nbdN on one export. With `patience` the kernel keeps requests that long while the server is away.

    What was under way when a connection died is sent again `timeout` seconds after it was first sent, and a live
    connection is given up when a request takes that long: too short a time never gets a slow request done.
    """

    def __init__(self, index, path, export, patience, timeout=10):
        self.index, self.path, self.export = index, path, export
        self.patience, self.timeout = patience, timeout
        self.reconnects = 0
        self.closing = False
        self.netlink = Netlink()

    def connect(self):
        client = _nbd.Client(self.path, self.export)
        client.sock.settimeout(None)
        data = u32(INDEX, self.index) + u64(SIZE_BYTES, client.size) + u64(BLOCK_SIZE_BYTES, 4096)
        data += u64(SERVER_FLAGS, client.flags) + sockets(client.sock.fileno())
        if self.patience:
            data += u64(TIMEOUT, self.timeout) + u64(DEAD_CONN_TIMEOUT, self.patience)
        self.netlink.nbd(CONNECT, data)
        # The kernel has the connection now; our end of the file goes with `client`.
        if self.patience:
            self.watcher = Netlink()
            self.watcher.sock.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, self.watcher.group)
            threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            for kind, _, content in self.watcher.messages():
                dead = kind == self.watcher.family and content[0] == LINK_DEAD
                if dead and struct.unpack("=I", dict(attributes(content[4:]))[INDEX])[0] == self.index:
                    self.reconnect()

    def reconnect(self):
        """Another connection in the place of a dead one, as soon as the server answers."""
        while not self.closing:
            try:
                client = _nbd.Client(self.path, self.export)
                client.sock.settimeout(None)
                self.netlink.nbd(RECONFIGURE, u32(INDEX, self.index) + sockets(client.sock.fileno()))
                self.reconnects += 1
                return
            except (OSError, _nbd.Refused) as error:
                # No connection of this device is dead: an older message told of one that was replaced since.
                if getattr(error, "errno", None) == errno.ENOSPC:
                    return
                time.sleep(0.05)

    def disconnect(self):
        self.closing = True
        self.netlink.nbd(DISCONNECT, u32(INDEX, self.index))


def main():
    parser = argparse.ArgumentParser(description="Connects /dev/nbdN until the end of standard input.")
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--export", required=True)
    parser.add_argument("--patience", type=int, default=0, help="seconds that requests wait for a server that is away")
    arguments = parser.parse_args()
    device = Device(arguments.index, arguments.socket, arguments.export, arguments.patience)
    device.connect()
    print("connected", flush=True)
    sys.stdin.read()
    device.disconnect()


if __name__ == "__main__":
    main()
