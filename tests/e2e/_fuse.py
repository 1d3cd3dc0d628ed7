"""A FUSE file system whose files hang on demand: drives that stop answering, for tests.

    python3 _fuse.py serve BACKING MOUNTPOINT CONTROL    serves the files of BACKING at MOUNTPOINT until killed
    python3 _fuse.py probe                               exit code 0 where `serve` can work, else 77 and the reason
    python3 _fuse.py ctl CONTROL COMMAND...              sends one command and prints the answer

The commands, which CONTROL (a Unix socket) takes one a line:

    hang OP [FILE [FROM-TO]]   requests OP of FILE (all files: *) are held from now on; reads, writes and
                               fallocates only where they touch the bytes FROM up to TO, which is not included
    release [OP [FILE]]        forgets these rules and answers what they held (everything without an argument)
    held                       how many requests are held now
    count OP [FILE]            how many requests OP have arrived

OP is one of open, getattr, read, write, fsync, fallocate, lookup, flush, or all. Numbers of bytes may end in K or M.

It speaks the protocol of the kernel (/usr/include/linux/fuse.h, 7.31) over /dev/fuse and mounts by mount(2), so it
needs root and no library. A held request costs no thread: it lies in a list until it is released, and its caller
waits in the kernel meanwhile, also through SIGKILL, as with a drive that hangs. Killing the server ends all of
them with an error. Files are opened for direct I/O with writes in parallel. `fsync` is answered and not passed on:
tests kill processes here, not machines.
"""
import ctypes
import errno
import os
import socket
import stat
import struct
import sys
import threading

PROTOCOL = (7, 31)
MAX_WRITE = 1 << 20
ROOT = 1
# How long the kernel may keep a name or its attributes: not at all, so that every stat arrives here.
ENTRY_VALID = 0

INIT_MAX_PAGES = 1 << 22
INIT_BIG_WRITES = 1 << 5
INIT_PARALLEL_DIROPS = 1 << 18
FOPEN_DIRECT_IO = 1 << 0
FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6
SETATTR_SIZE = 1 << 3

OPS = {
    1: "lookup", 2: "forget", 3: "getattr", 4: "setattr", 10: "unlink", 14: "open", 15: "read", 16: "write",
    17: "statfs", 18: "release", 20: "fsync", 25: "flush", 26: "init", 27: "opendir", 28: "readdir",
    29: "releasedir", 35: "create", 36: "interrupt", 38: "destroy", 42: "batch_forget", 43: "fallocate",
}
CAN_HANG = ("open", "getattr", "read", "write", "fsync", "fallocate", "lookup", "flush", "all")
WITH_RANGE = ("read", "write", "fallocate")
UNANSWERED = ("forget", "batch_forget", "interrupt")

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    """Calls a function of libc that gives -1 and errno for an error."""
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fallocate(fd, mode, offset, length):
    call("fallocate", fd, mode, ctypes.c_long(offset), ctypes.c_long(length))


def probe():
    """Why `serve` cannot work here, or None."""
    if os.geteuid() != 0:
        return "mounting a FUSE file system needs root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be opened ({error.strerror})"
    return None


class Refused(Exception):
    """A command that makes no sense; its text is the answer."""


class Rule:
    """Which requests are held."""

    def __init__(self, op, name="*", start=0, end=None):
        self.op, self.name, self.start, self.end = op, name, start, end

    def holds(self, op, name, span):
        if self.op not in (op, "all") or self.name not in (name, "*"):
            return False
        if op not in WITH_RANGE:
            return self.start == 0 and self.end is None
        return span[1] > self.start and (self.end is None or span[0] < self.end)


class Server:
    def __init__(self, backing, mountpoint):
        self.backing = backing
        self.lock = threading.Lock()
        self.nodes = {}      # node number -> file name
        self.numbers = {}    # and back
        self.files = {}      # file name -> descriptor in the backing folder
        self.rules = []
        self.held = []       # (op, name, span, request)
        self.counts = {}
        self.dev = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.dev},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        call("mount", b"strake-test", mountpoint.encode(), b"fuse.strake-test", 6, options.encode())

    # Requests ------------------------------------------------------------------------------------------------

    def work(self):
        while True:
            try:
                request = os.read(self.dev, MAX_WRITE + (64 << 10))
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                if error.errno == errno.ENODEV:
                    os._exit(0)  # unmounted
                raise
            self.take(request)

    def take(self, request):
        """Holds a request or serves it."""
        _, opcode, _, node = struct.unpack_from("<IIQQ", request)
        op = OPS.get(opcode, "other")
        with self.lock:
            name = self.nodes.get(node, "")
            if op == "lookup":
                name = request[40:].rstrip(b"\0").decode()
            span = (0, 0)
            if op in ("read", "write"):
                offset, size = struct.unpack_from("<QI", request, 48)
                span = (offset, offset + size)
            elif op == "fallocate":
                offset, size = struct.unpack_from("<QQ", request, 48)
                span = (offset, offset + size)
            self.counts[op, name] = self.counts.get((op, name), 0) + 1
            if name and any(rule.holds(op, name, span) for rule in self.rules):
                self.held.append((op, name, span, request))
                return
        self.serve(request)

    def serve(self, request):
        length, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        op = OPS.get(opcode, "other")
        if op in UNANSWERED:
            return
        handler = getattr(self, "do_" + op, None)
        try:
            if handler is None:
                raise OSError(errno.ENOSYS, "")
            code, answer = 0, handler(node, request[40:length])
        except OSError as error:
            code, answer = -(error.errno or errno.EIO), b""
        try:
            os.write(self.dev, struct.pack("<IiQ", 16 + len(answer), code, unique) + answer)
        except OSError as error:
            # ENOENT: the request was interrupted and is gone. ENODEV: unmounted.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise

    def path(self, node):
        if node == ROOT:
            return self.backing
        return os.path.join(self.backing, self.nodes[node])

    def number_of(self, name):
        with self.lock:
            if name not in self.numbers:
                number = len(self.numbers) + 2
                self.numbers[name], self.nodes[number] = number, name
            return self.numbers[name]

    def file_of(self, node):
        with self.lock:
            name = self.nodes[node]
            if name not in self.files:
                self.files[name] = os.open(os.path.join(self.backing, name), os.O_RDWR | os.O_CLOEXEC)
            return self.files[name]

    def attributes(self, node):
        at = os.stat(self.path(node))
        times = [int(at.st_atime), int(at.st_mtime), int(at.st_ctime)]
        return struct.pack(
            "<6Q10I", node, at.st_size, at.st_blocks, *times, 0, 0, 0, at.st_mode, at.st_nlink, at.st_uid,
            at.st_gid, 0, 4096, 0)

    def entry(self, name):
        if "/" in name or not stat.S_ISREG(os.stat(os.path.join(self.backing, name)).st_mode):
            raise OSError(errno.ENOENT, "")
        node = self.number_of(name)
        return struct.pack("<4Q2I", node, 0, ENTRY_VALID, ENTRY_VALID, 0, 0) + self.attributes(node)

    def do_init(self, _node, body):
        _, _, readahead, offered = struct.unpack_from("<4I", body)
        flags = offered & (INIT_MAX_PAGES | INIT_BIG_WRITES | INIT_PARALLEL_DIROPS)
        head = struct.pack("<4I2H2I", *PROTOCOL, readahead, flags, 1024, 1024, MAX_WRITE, 1)
        return head + struct.pack("<2H", MAX_WRITE // 4096, 0) + bytes(32)

    def do_lookup(self, _node, body):
        return self.entry(body.rstrip(b"\0").decode())

    def do_getattr(self, node, _body):
        return struct.pack("<Q2I", ENTRY_VALID, 0, 0) + self.attributes(node)

    def do_setattr(self, node, body):
        valid, _, _, size = struct.unpack_from("<2I2Q", body)
        if valid & SETATTR_SIZE:
            os.truncate(self.path(node), size)
        return self.do_getattr(node, b"")

    def opened(self):
        return struct.pack("<Q2I", 0, FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES, 0)

    def do_open(self, node, _body):
        self.file_of(node)
        return self.opened()

    def do_create(self, _node, body):
        mode = struct.unpack_from("<2I", body)[1]
        name = body[16:].rstrip(b"\0").decode()
        os.close(os.open(os.path.join(self.backing, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode & 0o777))
        return self.entry(name) + self.opened()

    def do_unlink(self, _node, body):
        name = body.rstrip(b"\0").decode()
        os.unlink(os.path.join(self.backing, name))
        with self.lock:
            self.nodes.pop(self.numbers.get(name), None)
            if name in self.files:
                os.close(self.files.pop(name))
            # Its number is not given out again: the kernel may still name it.
            self.numbers["\0unlinked%d" % len(self.numbers)] = self.numbers.pop(name, 0)
        return b""

    def do_read(self, node, body):
        offset, size = struct.unpack_from("<QI", body, 8)
        return os.pread(self.file_of(node), size, offset)

    def do_write(self, node, body):
        offset, size = struct.unpack_from("<QI", body, 8)
        return struct.pack("<2I", os.pwrite(self.file_of(node), body[40:40 + size], offset), 0)

    def do_fallocate(self, node, body):
        _, offset, size, mode = struct.unpack_from("<3QI", body)
        fallocate(self.file_of(node), mode, offset, size)
        return b""

    def do_statfs(self, _node, _body):
        at = os.statvfs(self.backing)
        blocks = struct.pack("<5Q", at.f_blocks, at.f_bfree, at.f_bavail, at.f_files, at.f_ffree)
        return blocks + struct.pack("<4I", at.f_bsize, 255, at.f_frsize, 0) + bytes(24)

    def do_opendir(self, _node, _body):
        return struct.pack("<Q2I", 0, 0, 0)

    def do_readdir(self, _node, body):
        offset, size = struct.unpack_from("<QI", body, 8)
        answer = b""
        for at, name in enumerate(sorted(os.listdir(self.backing))):
            raw = name.encode()
            one = struct.pack("<2Q2I", self.number_of(name), at + 1, len(raw), stat.S_IFREG >> 12) + raw
            one += bytes(-len(one) % 8)
            if len(answer) + len(one) > size:
                break
            if at >= offset:
                answer += one
        return answer

    def do_fsync(self, _node, _body):
        return b""

    do_release = do_releasedir = do_flush = do_destroy = do_fsync

    # Commands ------------------------------------------------------------------------------------------------

    def command(self, words):
        verb, words = (words or [""])[0], words[1:]
        if words and words[0] not in CAN_HANG:
            raise Refused(f"no such operation: {words[0]}")
        if verb == "hang" and 1 <= len(words) <= 3:
            rule = Rule(words[0], *words[1:2], *(span_of(words[2]) if len(words) == 3 else ()))
            with self.lock:
                self.rules.append(rule)
            return "ok"
        if verb == "release" and len(words) <= 2:
            return self.release(*words)
        if verb == "held" and not words:
            with self.lock:
                return str(len(self.held))
        if verb == "count" and 1 <= len(words) <= 2:
            with self.lock:
                matches = Rule(*words)
                return str(sum(n for (op, name), n in self.counts.items()
                               if matches.op in (op, "all") and matches.name in (name, "*")))
        raise Refused("no such command; the head of _fuse.py lists them")

    def release(self, op="all", name="*"):
        with self.lock:
            self.rules = [r for r in self.rules
                          if not (op in (r.op, "all") and name in (r.name, "*"))]
            still, free = [], []
            for held in self.held:
                kept = any(rule.holds(*held[:3]) for rule in self.rules)
                (still if kept else free).append(held)
            self.held = still
        for held in free:
            self.serve(held[3])
        return f"ok {len(free)}"

    def listen(self, control):
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The name appears when connections are accepted: callers wait for it.
        door.bind(control + ".new")
        door.listen(16)
        os.rename(control + ".new", control)
        while True:
            peer = door.accept()[0]
            with peer, peer.makefile("rw") as lines:
                for line in lines:
                    try:
                        answer = self.command(line.split())
                    except (Refused, ValueError) as error:
                        answer = f"error {error}"
                    print(answer, file=lines, flush=True)


def number_of_bytes(text):
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 0)
    return int(text[:-1]) * unit if unit else int(text)


def span_of(text):
    start, _, end = text.partition("-")
    return number_of_bytes(start), number_of_bytes(end) if end else None


def serve(backing, mountpoint, control):
    why = probe()
    if why:
        print(f"skipped: {why}", file=sys.stderr)
        sys.exit(77)
    server = Server(backing, mountpoint)
    for _ in range(4):
        threading.Thread(target=server.work, daemon=True).start()
    server.listen(control)


def ctl(control, *words):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.connect(control)
        with door.makefile("rw") as lines:
            print(*words, file=lines, flush=True)
            answer = lines.readline().strip()
    print(answer)
    if not answer or answer.startswith("error"):
        sys.exit(1)


def main(verb="", *arguments):
    if verb == "serve" and len(arguments) == 3:
        serve(*arguments)
    elif verb == "ctl" and len(arguments) >= 2:
        ctl(*arguments)
    elif verb == "probe" and not arguments:
        why = probe()
        if why:
            print(why)
            sys.exit(77)
    else:
        print(__doc__, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
