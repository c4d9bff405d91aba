# SPDX-License-Identifier: Apache-2.0
# The doors. Meson does the building; `make help` lists what there is.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: all help deps demo test bench fuzz soak lint format sanitize install wheel conformance clean

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@command -v meson >/dev/null || { echo "meson is missing; run: make deps" >&2; exit 1; }
	@meson setup $(BUILD) --prefix $(PREFIX)

help:
	@sed -n 's/^#: //p' Makefile

#: make           build; the command is then build/cubby
#: make deps      install with apt what building and running needs
deps:
	@scripts/install-deps build run

#: make demo      from nothing to commands in a machine, with the time of each step
demo: deps
	@scripts/demo

#: make test      build and run all tests (installs what they need)
test:
	@scripts/test

#: make bench     measure; figures on the screen and in bench-results/
bench:
	@scripts/bench

#: make fuzz      libFuzzer over every parser, SECONDS_EACH (default 60) for each
fuzz:
	@scripts/fuzz

#: make soak      create, use and remove boxes for MINUTES (default 30), watching for leaks
soak: deps all
	@scripts/soak

#: make lint      banned calls, format, static analysis, shell scripts, licence lines
lint:
	@scripts/lint

#: make format    clang-format over the tree
format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

#: make sanitize  unit tests and fuzz corpora under ASan and UBSan
sanitize:
	@scripts/sanitize

#: make install   to PREFIX (default /usr/local) under DESTDIR
install: all
	@meson configure $(BUILD) --prefix $(PREFIX)
	@DESTDIR="$(DESTDIR)" meson install -C $(BUILD) --quiet

#: make wheel     a Python wheel with the library in it, in dist/
wheel: all
	@scripts/make-wheel $(BUILD)

#: make conformance  the DeerFlow binding's tests on DeerFlow's own classes, where they can be had
conformance: all
	@scripts/conformance

#: make clean     remove what was built
clean:
	@rm -rf $(BUILD) build-asan build-clang build-fuzz bench-results dist
