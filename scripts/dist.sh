#!/usr/bin/env bash
# Makes packages from programs that are built (make build): a Debian package, an RPM package, and the lists of the crates
# in the programs (SBOM, CycloneDX 1.5).
#
# Usage: scripts/dist.sh PROGRAMS OUTPUT
#
# PROGRAMS is the folder with strake and straked. OUTPUT gets `root`, the tree of installed files, and the packages. The
# same programs give the same bytes: all times are SOURCE_DATE_EPOCH, by default the time of the last commit.
# STRAKE_DEB_VERSION replaces the version.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC

fail() { printf 'dist: %s\n' "$*" >&2; exit 1; }

[[ $# -eq 2 ]] || fail "usage: scripts/dist.sh PROGRAMS OUTPUT"
programs=$1 output=$2 root=$2/root
for program in strake straked; do
    [[ -x $programs/$program ]] || fail "$programs has no $program: run make build first"
done
for tool in dpkg-deb dpkg-shlibdeps rpmbuild strip; do
    command -v "$tool" >/dev/null 2>&1 || fail "$tool is missing: run scripts/setup.sh dist"
done
cargo cyclonedx --help >/dev/null 2>&1 || fail "cargo-cyclonedx is missing: run scripts/setup.sh dist"
if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || fail "this is no git checkout: set SOURCE_DATE_EPOCH"
fi
export SOURCE_DATE_EPOCH

# The version of the workspace if this commit has its tag; else one that sorts before it, or after it if the tag is
# older than this commit.
version() {
    local version mark='~'
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    if git describe --tags --exact-match --match "v$version" >/dev/null 2>&1; then
        printf '%s-1\n' "$version"
    else
        if git describe --tags --match "v$version" >/dev/null 2>&1; then mark=+; fi
        printf '%s%sgit%s.%s-1\n' "$version" "$mark" "$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M%S)" \
            "$(git rev-parse --short=8 HEAD 2>/dev/null || echo unknown)"
    fi
}

# put MODE FILE TARGET: installs FILE, or standard input for -, as TARGET of the tree.
put() {
    if [[ $2 == - ]]; then
        install -D -m "$1" /dev/stdin "$root/$3"
    else
        install -D -m "$1" "$2" "$root/$3"
    fi
}

# The licences of the crates that the programs contain.
crates() {
    cargo tree --locked --offline -p strake-cli -p strake-daemon -e normal --prefix none -f '{p}|{l}' |
        sed -n '/(\//d; s/ (\*)$//; s/^\(.*\)|\(.*\)$/  \1: \2/p' | sort -u
}

stage() {
    local shell page
    for program in strake straked; do
        put 0755 "$programs/$program" "usr/bin/$program"
        strip --strip-unneeded "$root/usr/bin/$program"
    done
    "$programs/strake" man "$root/usr/share/man/man1" >/dev/null
    "$programs/straked" --manual | put 0644 - usr/share/man/man8/straked.8
    "$programs/strake" completions bash | put 0644 - usr/share/bash-completion/completions/strake
    "$programs/strake" completions zsh | put 0644 - usr/share/zsh/vendor-completions/_strake
    "$programs/strake" completions fish | put 0644 - usr/share/fish/vendor_completions.d/strake.fish
    "$programs/straked" --example-config | put 0644 - etc/strake/straked.toml
    put 0644 packaging/straked.service usr/lib/systemd/system/straked.service
    put 0644 packaging/strake.sysusers usr/lib/sysusers.d/strake.conf
    put 0644 packaging/privileged.conf usr/share/doc/strake/examples/privileged.conf
    put 0644 packaging/prometheus/strake.rules.yml usr/share/strake/prometheus/strake.rules.yml
    put 0644 packaging/prometheus/strake.test.yml usr/share/strake/prometheus/strake.test.yml
    put 0644 packaging/grafana/strake.json usr/share/strake/grafana/strake.json
    put 0644 CHANGELOG.md usr/share/doc/strake/changelog
    {
        printf 'strake (%s) unstable; urgency=medium\n\n' "$version"
        printf '  * Changes: /usr/share/doc/strake/changelog.gz\n\n'
        printf ' -- Strake developers <strake@localhost>  %s\n' "$(date -R -d "@$SOURCE_DATE_EPOCH")"
    } | put 0644 - usr/share/doc/strake/changelog.Debian
    { cat packaging/deb/copyright && crates; } | put 0644 - usr/share/doc/strake/copyright
    gzip -9n "$root"/usr/share/doc/strake/changelog* "$root"/usr/share/man/man?/*
}

# The packages that the programs need, as on this system.
depends() {
    local folder
    folder=$(mktemp -d)
    mkdir "$folder/debian"
    printf 'Source: strake\n\nPackage: strake\nArchitecture: any\n' >"$folder/debian/control"
    (cd "$folder" && dpkg-shlibdeps -O "$absolute/usr/bin/strake" "$absolute/usr/bin/straked" 2>/dev/null) |
        sed -n 's/^shlibs:Depends=//p'
    rm -r "$folder"
}

package() {
    local control=$root/DEBIAN size name
    size=$(find "$root" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
    mkdir "$control"
    (cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$control/conffiles"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
    install -m 0755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$control"
    sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@DEPENDS@/$(depends)/" \
        packaging/deb/control >"$control/control"
    find "$root" -print0 | xargs -0 touch -h -d "@$SOURCE_DATE_EPOCH"
    name=strake_${version}_$architecture.deb
    # One thread: the blocks of several threads depend on the machine.
    dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$output/$name" >/dev/null
    rm -r "$control"
    printf 'dist: %s\n' "$output/$name"
}

# The tree of the RPM package: without what only Debian has, and with the folder of zsh on other distributions.
rpm_package() {
    local tree=$output/rpm
    mkdir -p "$tree/top"
    cp -a "$root" "$tree/root"
    rm "$tree/root/usr/share/doc/strake/changelog.Debian.gz"
    mkdir -p "$tree/root/usr/share/zsh/site-functions"
    mv "$tree/root/usr/share/zsh/vendor-completions/_strake" "$tree/root/usr/share/zsh/site-functions/"
    rmdir "$tree/root/usr/share/zsh/vendor-completions"
    find "$tree/root" -print0 | xargs -0 touch -h -d "@$SOURCE_DATE_EPOCH"
    sed "s/@VERSION@/${version%-*}/; s|@ROOT@|$(cd "$tree/root" && pwd)|" packaging/rpm/strake.spec >"$tree/strake.spec"
    rpmbuild -bb --quiet --define "_topdir $(cd "$tree/top" && pwd)" "$tree/strake.spec" >"$tree/log" 2>&1 ||
        fail "rpmbuild: $(tail -n 5 "$tree/log")"
    find "$tree/top/RPMS" -name '*.rpm' -exec mv {} "$output" \;
    rm -r "$tree"
    printf 'dist: %s\n' "$output"/strake-*.rpm
}

# The crates in each program, with their versions and licences. The tool writes into the folders of the crates.
sbom() {
    local program
    trap 'rm -f crates/*/*_bin.cdx.json' EXIT
    cargo cyclonedx --quiet --quiet --format json --describe binaries --no-build-deps --spec-version 1.5 \
        --manifest-path crates/daemon/Cargo.toml
    for program in cli/strake daemon/straked; do
        # The folder of this build is not part of the answer.
        sed "s|path+file://$PWD/|path+file:///strake/|g" "crates/${program}_bin.cdx.json" >"$output/${program#*/}.cdx.json"
        printf 'dist: %s\n' "$output/${program#*/}.cdx.json"
    done
}

version=${STRAKE_DEB_VERSION:-$(version)}
dpkg --validate-version "$version" || fail "$version is no version"
architecture=$(dpkg --print-architecture)
mkdir -p "$output"
# Packages of earlier builds would match the same pattern.
rm -rf "$root" "$output/rpm" "$output"/strake_*.deb "$output"/strake-*.rpm "$output"/*.cdx.json
mkdir "$root"
absolute=$(cd "$root" && pwd)
stage
package
rpm_package
sbom
