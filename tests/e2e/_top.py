"""`strake top` on a terminal, over a restart of the daemon: _top.py STRAKE

Prints "ready" once the array tank is shown, and "away" once the screen says that the daemon does not answer. Ends with 0
if the daemon was shown again and the command gave the terminal back.
"""

import os
import pty
import signal
import sys
import termios

DEADLINE_S = 120

shown = b""


def until(terminal, what):
    """Reads what is drawn up to `what`."""
    global shown
    while what not in shown:
        shown += os.read(terminal, 4096)
    shown = shown[shown.index(what) + len(what) :]


def main():
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.argv[1], [sys.argv[1], "top", "0.2"])
    signal.alarm(DEADLINE_S)
    until(terminal, b"\ntank ")
    print("ready", flush=True)
    until(terminal, b"does not answer")
    print("away", flush=True)
    until(terminal, b"sorted by requests\x1b[K")
    os.write(terminal, b"m")
    until(terminal, b"\ntank/0 ")
    os.write(terminal, b"q")
    until(terminal, b"\x1b[?1049l")
    modes = termios.tcgetattr(terminal)[3]
    assert modes & termios.ICANON and modes & termios.ECHO, "the terminal is not given back"
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status


main()
