#!/usr/bin/env bash
# The container image: built from the Debian package on a base system that debootstrap makes, run by runc as its own user
# without capabilities, with the seccomp profile of the project. An array is made, exported and read, and is whole again
# after a new container with the same volumes. System calls outside the profile fail.
#
# Usage: tests/nightly/container.sh [OUTPUT]      OUTPUT has the package of make dist (default: build/dist)
#
# Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/sbin:/sbin"

skip() { printf 'skipped: %s\n' "$*"; exit 77; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
say() { printf '   %s\n' "$*"; }

[[ $(id -u) -eq 0 ]] || skip "only root can start a container"
for tool in debootstrap buildah runc python3; do
    command -v "$tool" >/dev/null 2>&1 || skip "$tool is missing: apt-get install debootstrap buildah runc python3"
done
output=${1:-build/dist}
package=("$output"/strake_*.deb)
[[ -e ${package[0]} ]] || skip "$output has no package: run make build and make dist first"
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
work=$(mktemp -d /var/tmp/strake-container.XXXXXX)
image=strake-test-$$ base=strake-base-$$ name=strake-test-$$ container=
cleanup() {
    local code=$?
    trap - EXIT
    if [[ $code -ne 0 && $code -ne 77 ]]; then tail -n 20 "$work/log" >&2 2>/dev/null || true; fi
    runc delete --force "$name" 2>/dev/null || true
    if [[ -n $container ]]; then buildah rm "$container" >/dev/null 2>&1 || true; fi
    buildah rmi "localhost/$image" "localhost/$base" >/dev/null 2>&1 || true
    rm -rf "$work"
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "base system $release"
debootstrap --variant=minbase "$release" "$work/base" >"$work/log" 2>&1 || fail "debootstrap"
scratch=$(buildah from scratch)
buildah add -q "$scratch" "$work/base" / >/dev/null
buildah commit -q "$scratch" "localhost/$base" >/dev/null
buildah rm "$scratch" >/dev/null
rm -rf "$work/base"

say "image"
mkdir "$work/context"
cp "${package[0]}" "$work/context"
# The base system stands for the image of the registry, which this host may not reach.
sed "s|^FROM .*|FROM localhost/$base|" packaging/container/Containerfile >"$work/Containerfile"
buildah bud --isolation chroot --network host --pull-never -f "$work/Containerfile" -t "$image" "$work/context" \
    >"$work/log" 2>&1 || fail "buildah"
container=$(buildah from --pull-never "localhost/$image")
root=$(buildah mount "$container")

mkdir "$work/drives" "$work/state"
for number in 1 2 3 4; do truncate -s 128M "$work/drives/d$number"; done
chown -R "$(stat -c %u:%g "$root/var/lib/strake")" "$work/drives" "$work/state"

# The configuration of the image and the seccomp profile, as runc reads them. podman and docker make the same of them.
(cd "$work" && runc spec)
python3 - "$work" "$root" <(buildah inspect "$container") <<'PYTHON'
import json, os, sys
work, root, about = sys.argv[1:]
image = json.load(open(about))["OCIv1"]["config"]
spec = json.load(open(f"{work}/config.json"))
profile = json.load(open("packaging/container/seccomp.json"))
user = next(line.split(":") for line in open(f"{root}/etc/passwd") if line.startswith(image["User"] + ":"))
spec["process"].update(terminal=False, args=image["Entrypoint"] + image["Cmd"], env=image["Env"], rlimits=[], noNewPrivileges=True)
spec["process"]["user"] = {"uid": int(user[2]), "gid": int(user[3])}
spec["process"]["capabilities"] = {name: [] for name in spec["process"]["capabilities"]}
spec["root"] = {"path": root, "readonly": False}
for inside, outside in (("/drives", "drives"), ("/var/lib/strake", "state")):
    mount = {"destination": inside, "type": "bind", "source": f"{work}/{outside}", "options": ["rbind", "rw"]}
    spec["mounts"].append(mount)
spec["linux"]["seccomp"] = {
    "defaultAction": profile["defaultAction"],
    "defaultErrnoRet": profile["defaultErrnoRet"],
    "architectures": [a["architecture"] for a in profile["archMap"]],
    "syscalls": profile["syscalls"],
}
json.dump(spec, open(f"{work}/config.json", "w"))
PYTHON

inside() { runc exec "$name" "$@"; }
answers() { inside strake status >/dev/null 2>&1; }
begin() {
    (cd "$work" && exec runc run "$name") >>"$work/log" 2>&1 &
    local end=$((SECONDS + 30))
    until answers; do
        if ((SECONDS >= end)); then fail "straked does not answer: $(tail -n 3 "$work/log")"; fi
        sleep 0.2
    done
}
stop() {
    runc kill "$name" TERM
    wait %% || fail "straked ended with $? after SIGTERM"
}

say "daemon"
begin
pid=$(runc state "$name" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
grep -q '^Seccomp:[[:space:]]*2' "/proc/$pid/status" || fail "the daemon runs without the profile"
grep -q '^CapEff:[[:space:]]*0000000000000000' "/proc/$pid/status" || fail "the daemon has capabilities"
inside strake array create tank --level 6 --drives /drives/d1,/drives/d2,/drives/d3,/drives/d4 >/dev/null
readlink "/proc/$pid/fd/"* | grep -q io_uring || fail "the daemon does not use io_uring"
inside strake export create tank --via nbd --listen unix:/run/strake/tank.sock >/dev/null
inside strake wait tank --for healthy --timeout 60s >/dev/null
inside strake status >/dev/null || fail "the array is not healthy"
# forbidden NAME NUMBER ARGUMENT...: a system call, by its number on x86_64, ends with EPERM.
forbidden() {
    [[ $(uname -m) == x86_64 ]] || return 0
    inside perl -e 'my ($name, @call) = @ARGV; my $r = syscall($call[0] + 0, map { $_ + 0 } @call[1 .. $#call]);
        exit($r == -1 && $!{EPERM} ? 0 : 1)' "$@" || fail "the system call $1 is allowed"
}
new_user=$((0x10000000))
forbidden unshare 272 "$new_user"
forbidden clone 56 $((new_user + 17)) 0 0 0 0
forbidden ptrace 101 0 0 0 0
forbidden keyctl 250 0 0 0 0 0
forbidden mount 165 0 0 0 0 0
stop
say "new container with the same volumes"
begin
inside strake wait tank --for healthy --timeout 60s >/dev/null
inside strake export list | grep -q tank || fail "the export is gone"
stop
say "passed"
