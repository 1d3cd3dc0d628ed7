#!/usr/bin/python3
"""Attempts that a contained process must not make. Run directly, and as a hook of straked, which inherits everything
that the daemon gave up. Writes a JSON object beside this file: for each attempt, `done` or the name of the error.

The name of the output is `free` with the argument `free`, else `contained`.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import termios

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
# Numbers of calls: x86-64, and the table of newer architectures (asm-generic/unistd.h).
NUMBERS = {name: pair[0 if X86 else 1] for name, pair in {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "bpf": (321, 280), "keyctl": (250, 219), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "open_by_handle_at": (304, 265), "personality": (135, 92), "kcmp": (312, 272),
    "kexec_load": (246, 104), "init_module": (175, 105), "swapon": (167, 224), "io_uring_setup": (425, 425),
    "fsopen": (430, 430), "open_tree": (428, 428), "clone3": (435, 435), "chroot": (161, 51),
}.items()}
ATTACH, DETACH, NEWNS, NEWUTS, NEWUSER = 16, 17, 0x20000, 0x4000000, 0x10000000
REC_PRIVATE = 0x44000
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.geteuid() == 0
# The capabilities that root needs for all attempts (linux/capability.h): DAC_READ_SEARCH, NET_RAW, SYS_MODULE,
# SYS_CHROOT, SYS_PTRACE, SYS_ADMIN and SYS_BOOT.
NEEDED = (2, 13, 16, 18, 19, 21, 22)


def call(name, *arguments):
    done = LIBC.syscall(NUMBERS[name], *[ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments])
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return done


def with_child(attempt):
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        attempt(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def ptrace():
    def attempt(child):
        call("ptrace", ATTACH, child, 0, 0)
        os.waitpid(child, 0)
        call("ptrace", DETACH, child, 0, 0)
    with_child(attempt)


def read_memory():
    place = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(place), 8)
    with_child(lambda child: call("process_vm_readv", child, vector, 1, vector, 1, 0))


def in_child(attempt):
    """Changes the namespaces of a child only."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 0
        try:
            attempt()
        except OSError as error:
            code = error.errno
        os.write(writer, code.to_bytes(2, "little"))
        os._exit(0)
    os.waitpid(child, 0)
    code = int.from_bytes(os.read(reader, 2), "little")
    if code:
        raise OSError(code, os.strerror(code))


def mount():
    try:
        call("unshare", NEWNS)
        call("mount", 0, ctypes.c_char_p(b"/"), 0, REC_PRIVATE, 0)
    except PermissionError:
        pass
    call("mount", ctypes.c_char_p(b"none"), ctypes.c_char_p(b"/mnt"), ctypes.c_char_p(b"tmpfs"), 0, 0)


def push_character():
    master, slave = os.openpty()
    name = os.ttyname(slave)

    def attempt():
        os.setsid()
        terminal = os.open(name, os.O_RDWR)
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        try:
            fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
        except OSError as error:
            # A kernel that refuses this itself (dev.tty.legacy_tiocsti) says EIO.
            if error.errno == errno.EPERM:
                raise
    in_child(attempt)


def write_system():
    path = f"/etc/strake-e2e-{os.getpid()}"
    with open(path, "w", encoding="ascii"):
        os.unlink(path)


def execute_own():
    program = os.path.join(os.path.dirname(HERE), f"program-{os.getpid()}")
    shutil.copy("/usr/bin/true", program)
    try:
        subprocess.run([program], check=True)
    finally:
        os.unlink(program)


ATTEMPTS = {
    "ptrace": ptrace,
    "read memory": read_memory,
    "unshare": lambda: in_child(lambda: call("unshare", NEWUTS if ROOT else NEWUSER)),
    "bpf": lambda: call("bpf", 0xffff, 0, 0),
    "keyctl": lambda: call("keyctl", 0xffff, 0, 0, 0, 0),
    "perf": lambda: call("perf_event_open", 0, 0, 0xffffffff, 0xffffffff, 0xffff),
    "handle": lambda: call("open_by_handle_at", 0xffffffff, 0, 0),
    "personality": lambda: call("personality", 0xffffffff),
    "kcmp": lambda: call("kcmp", os.getpid(), os.getpid(), 1, 0, 0),
    "character": push_character,
    "AF_ALG": lambda: socket.socket(38, socket.SOCK_SEQPACKET).close(),
    "execute": execute_own,
} | ({
    "mount": lambda: in_child(mount),
    "AF_PACKET": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
    "kexec": lambda: call("kexec_load", 0, 99, 0, 0),
    "module": lambda: call("init_module", 0, 0, 0),
    "swapon": lambda: call("swapon", 0, 0),
    "fsopen": lambda: call("fsopen", 0, 0),
    "chroot": lambda: call("chroot", 0),
    "write": write_system,
} if ROOT else {})


def result(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "done"


def status(field):
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(line.split()[1] for line in lines if line.startswith(field + ":"))


def main():
    # Before attempts open more. The last one is the folder itself.
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    found = {name: result(attempt) for name, attempt in ATTEMPTS.items()}
    found["clone3"] = result(lambda: call("clone3", 0, 0))
    found["io_uring"] = result(lambda: call("io_uring_setup", 1, 0))
    found["/"] = {
        "session": os.getsid(0) == os.getpid(),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "no_new_privs": status("NoNewPrivs"),
        "all_rights": ROOT and all(int(status("CapEff"), 16) >> number & 1 for number in NEEDED),
        # Python sets this one itself.
        "environment": sorted(os.environ.keys() - {"LC_CTYPE"}),
        "descriptors": descriptors,
    }
    name = "free" if sys.argv[1:] == ["free"] else "contained"
    path = os.path.join(HERE, name)
    with open(path + ".new", "w", encoding="utf-8") as out:
        json.dump(found, out)
    os.rename(path + ".new", path)


main()
