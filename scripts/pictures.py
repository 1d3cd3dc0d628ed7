#!/usr/bin/env python3
"""Draws the pictures in docs/pictures: the architecture, one write, and one stripe.

Usage: scripts/pictures.py            writes docs/pictures/*.svg
       scripts/pictures.py --dark DIR writes them to DIR with the dark colors, to check them in a viewer

This file is the source of the pictures; edit it, run it, and commit the SVG files with it. It needs Python 3 alone.
The colors follow the color scheme of the reader: the SVG has light colors, and a media query with dark ones.
"""

import argparse
import html
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Class: property, light value, dark value.
COLORS = {
    "page": ("fill", "#ffffff", "#0f1419"),
    "text": ("fill", "#1b1f24", "#e6e8eb"),
    "soft": ("fill", "#57606a", "#9aa4af"),
    "line": ("stroke", "#57606a", "#9aa4af"),
    "tip": ("fill", "#57606a", "#9aa4af"),
    "lane": ("fill", "#f3f5f7", "#1a2129"),
    "box": ("fill", "#dbe8f7", "#1f3a5a"),
    "own": ("fill", "#dff2e1", "#1d4427"),
    "meta": ("fill", "#fdeecf", "#5a4212"),
    "par": ("fill", "#f7d9e3", "#5c2237"),
    "edge": ("stroke", "#8c959f", "#6b7682"),
    "mark": ("stroke", "#b3261e", "#ff8a80"),
}


def style(dark):
    """The style sheet: light colors and a media query, or the dark colors alone."""

    def rules(at):
        return "".join(f".{name}{{{c[0]}:{c[at]}}}" for name, c in COLORS.items())

    fixed = ".line,.mark{fill:none;stroke-width:1.6}.mark{stroke-width:2.4}.edge{stroke-width:1}"
    if dark:
        return f"<style>{fixed}{rules(2)}</style>"
    return f"<style>{fixed}{rules(1)}@media (prefers-color-scheme:dark){{{rules(2)}}}</style>"


class Picture:
    """A canvas that collects SVG elements."""

    def __init__(self, name, title, width, height):
        self.name, self.title, self.width, self.height = name, title, width, height
        self.parts = []

    def add(self, element):
        self.parts.append(element)

    def text(self, x, y, words, size=14, anchor="middle", kind="text", bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.add(
            f'<text class="{kind}" x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"{weight}>'
            f"{html.escape(words)}</text>"
        )

    def box(self, x, y, width, height, lines, kind="box", size=14):
        """A box with centered lines; the first of several in a "box" is bold."""
        self.add(
            f'<rect class="{kind} edge" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'
        )
        step = size + 4
        top = y + height / 2 - step * (len(lines) - 1) / 2 + size * 0.35
        for n, words in enumerate(lines):
            bold = n == 0 and len(lines) > 1 and kind == "box"
            self.text(x + width / 2, round(top + n * step, 1), words, size, bold=bold)

    def lane(self, x, y, width, height, words):
        """A band of background with its name at the left."""
        self.add(f'<rect class="lane" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        self.text(x + 10, y + 19, words, 12, "start", "soft")

    def note(self, x, y, lines):
        """Small words on a background that hides what is behind them."""
        self.add(f'<rect class="lane" x="{x}" y="{y}" width="196" height="{18 * len(lines) + 14}" rx="5"/>')
        for n, words in enumerate(lines):
            self.text(x + 10, y + 20 + 18 * n, words, 12, "start", "soft")

    def arrow(self, x1, y1, x2, y2, words=None, label_dy=-7, anchor="middle", label_dx=0):
        """A straight arrow, with words beside its middle."""
        self.add(f'<path class="line" d="M{x1} {y1}L{x2} {y2}" marker-end="url(#tip)"/>')
        if words:
            x, y = (x1 + x2) / 2 + label_dx, (y1 + y2) / 2 + label_dy
            self.text(round(x, 1), round(y, 1), words, 12, anchor)

    def svg(self, dark=False):
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img">\n'
            f"<title>{html.escape(self.title)}</title>\n{style(dark)}\n"
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse"><path class="tip" d="M0 0L10 5L0 10z"/>'
            "</marker></defs>\n"
            f'<rect class="page" width="{self.width}" height="{self.height}"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def architecture():
    """Crates by layer. The data path runs down the left, the control plane is at the right."""
    p = Picture("architecture", "Crates by layer, and the path of a request", 960, 640)
    p.text(20, 28, "Data path", 16, "start", bold=True)
    p.text(720, 28, "Control plane", 16, "start", bold=True)
    p.box(40, 44, 280, 36, ["NBD client (local)"], "own")
    p.box(370, 44, 280, 36, ["NVMe/TCP host (remote)"], "own")
    p.box(720, 44, 220, 36, ["operator, scripts"], "own")

    p.lane(20, 100, 660, 84, "L5 exports")
    p.box(40, 126, 280, 46, ["export-nbd"])
    p.box(370, 126, 280, 46, ["export-nvmet"])
    p.text(345, 117, "both use export-net: accept, buffers, send", 12, "middle", "soft")

    p.lane(20, 204, 660, 136, "L4 engine: one array")
    for n, words in enumerate(["shard of core 0", "shard of core 1", "shard of core N"]):
        x = 40 + n * 208
        p.box(x, 230, 194, 62, [words, "locks bands, executes plans"], "box", 13)
    p.text(345, 318, "a function of the stripe number selects the shard; shards exchange messages", 12, "middle", "soft")

    p.lane(20, 360, 660, 84, "L3 drivers")
    p.box(40, 386, 194, 46, ["dev-uring"])
    p.box(248, 386, 194, 46, ["dev-fabrics"])
    p.box(456, 386, 194, 46, ["dev-mem"])
    p.box(40, 464, 194, 36, ["files, block devices"], "own")
    p.box(248, 464, 194, 36, ["NVMe/TCP namespaces"], "own")
    p.box(456, 464, 194, 36, ["RAM and null drives"], "own")

    p.lane(20, 520, 660, 104, "Used by all of them")
    p.box(40, 546, 290, 62, ["L1, L2: block (the device contract),", "reactor (the core loop), nvme-tcp, tls"], "meta", 13)
    p.box(350, 546, 300, 62, ["L0 (pure): raid, ondisk, parity,", "units, nvme-wire, nvme-auth"], "meta", 13)

    for x in (180, 510):
        p.arrow(x, 80, x, 124)
        p.arrow(x, 172, x, 228)
    for x in (137, 345, 553):
        p.arrow(x, 340, x, 384)
        p.arrow(x, 432, x, 462)

    p.lane(720, 100, 220, 344, "L6 control")
    p.box(740, 126, 180, 46, ["cli (strake)"])
    p.box(740, 206, 180, 46, ["daemon (straked)"])
    p.box(740, 286, 180, 62, ["control", "drives, arrays, exports"], "box", 13)
    p.box(740, 382, 180, 46, ["alerts (hooks)"])
    p.arrow(830, 80, 830, 124)
    p.arrow(830, 172, 830, 204, "gRPC", 4, "start", 8)
    p.arrow(830, 252, 830, 284)
    p.arrow(830, 348, 830, 380, "events", 4, "start", 8)
    p.arrow(740, 317, 682, 317)
    p.text(830, 470, "creates, assembles, repairs", 12, "middle", "soft")
    p.text(830, 488, "and exports arrays;", 12, "middle", "soft")
    p.text(830, 506, "takes no part in I/O", 12, "middle", "soft")
    return p


def write():
    """A partial write of 4 KiB to a RAID 6 array, from the host to the members and back."""
    p = Picture("write", "A partial write of a RAID 6 array", 960, 590)
    lanes = [("host", 90), ("export", 270), ("owning shard", 480), ("leader (shard 0)", 690), ("members", 870)]
    for words, x in lanes:
        p.box(x - 78, 16, 156, 34, [words], "own")
        p.add(f'<path class="edge" d="M{x} 50V570" stroke-dasharray="3 5" fill="none"/>')
    host, export, shard, leader, members = (x for _, x in lanes)

    p.arrow(host, 84, export, 84, "1. write 4 KiB")
    p.arrow(export, 116, shard, 116, "2. part for this band")
    p.box(shard - 78, 128, 156, 34, ["lock the band"], "box", 13)
    p.arrow(shard, 190, leader, 190, "3. region is clean: intent?")
    p.arrow(leader, 220, members, 220, "bitmap page, FUA")
    p.arrow(leader, 250, shard, 250, "bit is stable")
    p.box(shard - 78, 262, 156, 50, ["4. plan", "read-modify-write"], "box", 13)
    p.arrow(shard, 340, members, 340, "5. read old data, P, Q")
    p.arrow(members, 366, shard, 366)
    p.box(shard - 78, 378, 156, 50, ["6. parity", "update P and Q"], "box", 13)
    p.arrow(shard, 456, members, 456, "7. write data, P, Q (any order)")
    p.arrow(members, 482, shard, 482)
    p.box(shard - 78, 494, 156, 34, ["8. unlock the band"], "box", 13)
    p.arrow(shard, 552, host, 552, "9. success")
    p.note(14, 226, ["Step 3 is skipped while", "the region is dirty."])
    p.note(14, 380, ["If a member fails in step 7,", "its failure is recorded on the", "others before step 9."])
    return p


def stripe():
    """RAID 6 6+2: rows of the layout, one stripe, one strip, one band."""
    p = Picture("stripe", "RAID 6 with six data and two parity strips per stripe", 960, 576)
    left, top, wide, high = 150, 74, 92, 38
    for member in range(8):
        p.text(left + wide * member + wide / 2, top - 12, f"member {member}", 13, bold=True)
    # docs/on-disk.md, "Layout of data": P at w - 1 - r mod w, then Q and the data strips, modulo w.
    for row in range(8):
        parity = (7 - row % 8) % 8
        p.text(left - 14, top + high * row + 24, f"stripe {row}", 13, "end", bold=row == 0)
        for member in range(8):
            role = (member - parity) % 8
            words, kind = ("P", "par") if role == 0 else ("Q", "meta") if role == 1 else (f"D{row * 6 + role - 2}", "box")
            x, y = left + wide * member, top + high * row
            p.add(f'<rect class="{kind} edge" x="{x}" y="{y}" width="{wide}" height="{high}"/>')
            p.text(x + wide / 2, y + 24, words, 14)
    p.add(f'<rect class="mark" x="{left - 3}" y="{top - 3}" width="{wide * 8 + 6}" height="{high + 6}" rx="4"/>')
    p.text(left, 28, "A stripe is one strip of each member. P and Q move by one member per stripe.", 13, "start")

    y = 414
    p.text(left - 14, y + 20, "stripe 0", 13, "end", bold=True)
    labels = ["Q"] + [f"D{n}" for n in range(6)] + ["P"]
    for member, words in enumerate(labels):
        kind = "par" if words == "P" else "meta" if words == "Q" else "box"
        x = left + wide * member
        p.add(f'<rect class="{kind} edge" x="{x}" y="{y}" width="{wide - 8}" height="76"/>')
        p.text(x + (wide - 8) / 2, y + 20, words, 13)
    p.add(f'<rect class="mark" x="{left - 4}" y="{y + 32}" width="{wide * 8}" height="24" rx="4"/>')
    p.text(left - 14, y + 52, "a band", 13, "end")
    lines = (
        "A strip is 4 KiB to 1 MiB of consecutive blocks on one member.",
        "A band is the same blocks, at most 128 KiB, of every strip: the unit of locks, plans and merges.",
        "Each byte of P and Q is computed from the same byte of D0 to D5.",
    )
    for n, words in enumerate(lines):
        p.text(left, y + 98 + 18 * n, words, 13, "start")
    return p


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dark", metavar="DIR", help="write dark versions to DIR")
    arguments = parser.parse_args()
    folder = arguments.dark or os.path.join(ROOT, "docs", "pictures")
    os.makedirs(folder, exist_ok=True)
    for picture in (architecture(), write(), stripe()):
        path = os.path.join(folder, picture.name + ".svg")
        with open(path, "w", encoding="ascii") as out:
            out.write(picture.svg(dark=bool(arguments.dark)))
        print(path)


if __name__ == "__main__":
    main()
