# The commands a person types. `make` alone lists them; `make demo` and `make test` install what they need.

SHELL := /bin/bash
CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Debian keeps mkfs.ext4 and e2fsck in sbin, cargo lives in the home folder: neither is in every PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

.PHONY: help demo test bench build install dist clean

help:
	@echo 'make demo      build Strake, then make, use, break and repair a RAID 6 array on plain files'
	@echo 'make test      run every check and every test, as continuous integration does'
	@echo 'make bench     build ISA-L and strake-bench, and measure every goal; writes docs/benchmarks'
	@echo 'make build     build the programs: $(TARGET)/release/strake and straked'
	@echo 'make install   install them, and strake-bench if it was built, below PREFIX=$(PREFIX)'
	@echo 'make dist      make packages (deb, rpm) and the SBOM of the programs that make build built, in build/dist'
	@echo 'make clean     remove what was built'

demo:
	@scripts/setup.sh demo
	$(CARGO) build --release -p strake-cli -p strake-daemon
	$(TARGET)/release/strake demo

# Incremental data and small code units serve the next build, and take a quarter of the time of this one.
test: export CARGO_INCREMENTAL = 0
test: export CARGO_PROFILE_DEV_CODEGEN_UNITS = 1
test:
	@scripts/setup.sh test
	$(CARGO) xtask ci

bench:
	@scripts/setup.sh build
	@scripts/isal.sh
	$(CARGO) build --release -p strake-cli -p strake-daemon -p strake-bench
	STRAKE_ISAL=build/isal/lib/libisal.so.2 $(TARGET)/release/strake bench run all --save docs/benchmarks

build:
	@scripts/setup.sh build
	$(CARGO) build --release -p strake-cli -p strake-daemon

install:
	@test -x $(TARGET)/release/straked || { echo 'nothing to install yet: run make build first, as yourself'; exit 1; }
	@for program in strake straked strake-bench; do \
		test -x $(TARGET)/release/$$program || continue; \
		echo "install $$program below $(DESTDIR)$(PREFIX)/bin, without debug information"; \
		install -s -D -m 0755 $(TARGET)/release/$$program $(DESTDIR)$(PREFIX)/bin/$$program || exit 1; \
	done

dist:
	@scripts/setup.sh dist
	@scripts/dist.sh $(TARGET)/release build/dist

clean:
	$(CARGO) clean
