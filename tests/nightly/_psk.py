#!/usr/bin/env python3
"""What a host makes of its key for a subsystem, as *NVM Express TCP Transport Specification 1.1*, section 3.6.1, says and
nvme-cli did not for years: an identity of version 1, with _ for spaces, and what TLS is given for it.

Usage: _psk.py HOSTNQN SUBNQN <KEY"""

import base64
import hmac
import sys

HASHES = {"01": ("sha256", 32), "02": ("sha384", 48)}


def derive(hashed, key, label, context):
    """HKDF-Expand-Label (RFC 8446, section 7.1) of what HKDF-Extract makes of `key`, as long as the hash."""
    name, length = hashed
    label, context = b"tls13 " + label.encode(), context.encode()
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context
    return hmac.digest(hmac.digest(bytes(length), key, name), info + b"\1", name)


def main():
    host, subsystem = sys.argv[1:]
    _, kind, encoded, _ = sys.stdin.read().strip().split(":")
    hashed = HASHES[kind]
    retained = derive(hashed, base64.b64decode(encoded)[:-4], "HostNQN", host)
    names = f"{host} {subsystem} NVMe-over-Fabrics".encode()
    digest = base64.b64encode(hmac.digest(retained, names, hashed[0])).decode()
    secret = derive(hashed, retained, "nvme-tls-psk", f"{kind} {digest}")
    print(f"NVMe1R{kind}_{host}_{subsystem}_{digest}", secret.hex())


if __name__ == "__main__":
    main()
