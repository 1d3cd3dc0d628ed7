#!/usr/bin/env python3
"""Copies the ranges that `strake snapshot diff --json` printed from one NBD export to another, as a backup program
does: the source is a snapshot, the destination holds the older snapshot. Prints the number of bytes."""

import argparse
import json

from _nbd import FLUSH, Client

PIECE = 1 << 20


def copy(source, destination, ranges):
    """Copies each range, and returns the sum of their lengths."""
    total = 0
    for area in ranges:
        at, end = area["offset_bytes"], area["offset_bytes"] + area["length_bytes"]
        while at < end:
            count = min(PIECE, end - at)
            destination.write(at, source.read(at, count))
            at += count
            total += count
    destination.call(FLUSH)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranges", required=True, help="the document of strake snapshot diff --json")
    parser.add_argument("--source", required=True, help="SOCKET:EXPORT")
    parser.add_argument("--destination", required=True, help="SOCKET:EXPORT")
    arguments = parser.parse_args()
    with open(arguments.ranges) as file:
        ranges = json.load(file).get("ranges", [])
    source = Client(*arguments.source.rsplit(":", 1))
    destination = Client(*arguments.destination.rsplit(":", 1))
    print(copy(source, destination, ranges))
    source.close()
    destination.close()


if __name__ == "__main__":
    main()
