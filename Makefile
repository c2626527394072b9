# SPDX-License-Identifier: GPL-2.0
#
# The front door. What the commands do is in scripts/ and lab/.

ARCH ?=
LINUX ?=
JOBS ?= $(shell nproc)
ACCEL ?= tcg
TIME ?= 600
SEED ?=
V ?= 0
FORCE ?= 0
COMMITS ?=
ONLY ?=
TEST ?= 0
KEEP ?= 0
ADOPT ?= 0
CONFIG ?=
DEBUG_INFO ?= 0
export ARCH LINUX JOBS ACCEL TIME SEED V FORCE COMMITS ONLY CONFIG DEBUG_INFO

# The kernel's own makefiles must not see the flags and variables of this one.
MAKEFLAGS += --no-print-directory
MAKEOVERRIDES =

# Nor can they live with these in a path.
ifneq ($(words $(CURDIR))$(findstring :,$(CURDIR)),1)
$(error the kernel cannot be built in a directory with a space or a colon in its name)
endif
ifneq ($(filter-out arm64 x86_64 riscv64,$(ARCH)),)
$(error ARCH is arm64, x86_64 or riscv64, not "$(ARCH)")
endif
ifneq ($(filter-out arm64,$(ARCH)),)
ifneq ($(filter demo bench bench-quick,$(MAKECMDGOALS)),)
$(error make $(filter demo bench bench-quick,$(MAKECMDGOALS)) counts on arm64 only: for x86_64 QEMU \
emulates no PMU, and for riscv64 one that counts an event on one counter at a time)
endif
endif
ifneq ($(filter riscv64,$(ARCH)),)
ifneq ($(filter deb test-deb,$(MAKECMDGOALS)),)
$(error make $(filter deb test-deb,$(MAKECMDGOALS)) is for arm64 and x86_64)
endif
endif
ifneq ($(filter-out tcg kvm,$(ACCEL)),)
$(error ACCEL is tcg or kvm, not "$(ACCEL)")
endif

.PHONY: help
help:
	@echo 'make demo      count with perf stat sessions, without and with the series'
	@echo 'make test      test the series; results are in build/results'
	@echo 'make test-stress  random operations for a long time, with all checks and with KCSAN'
	@echo 'make check-series  all that each commit has to hold: several architectures and'
	@echo '               configurations, checkpatch, sparse, coccinelle, kernel-doc, boots; takes'
	@echo '               hours, and goes on where it was broken off'
	@echo 'make rebase LINUX=DIR|7.2  try the series on another kernel; what does not fit'
	@echo '               can be mended in build/rebase/linux'
	@echo 'make bench     what it costs, beside the unpatched kernel and BPF counters; writes'
	@echo '               bench/RESULTS.md; bench-quick measures a part and only tries the bars'
	@echo 'make shell     a shell in a guest that runs the patched kernel'
	@echo 'make deb       Debian packages of the patched kernel and of its perf, in build/packages;'
	@echo '               test-deb builds small ones, installs them in a chroot and boots the kernel'
	@echo 'make series    write the patches as mail to build/series and build/series-perf'
	@echo 'make assemble  linux/ and patches/ become commits in build/linux'
	@echo 'make export    commits made in build/linux become linux/ and patches/'
	@echo 'make clean     remove what was built, but keep the kernel source'
	@echo 'make distclean remove build/'
	@echo
	@echo 'ARCH=arm64|x86_64  only this architecture (shell: arm64; demo, bench: only arm64;'
	@echo '                   deb: that of this machine); ARCH=riscv64 for test and shell'
	@echo 'LINUX=DIR          use this kernel tree and not the Debian package; it is only read'
	@echo 'JOBS=N             compile with N processes (here: $(JOBS))'
	@echo 'ACCEL=tcg|kvm      how QEMU runs the guests (here: $(ACCEL))'
	@echo 'TIME=SECONDS       of test-stress, on each of its two kernels (here: $(TIME))'
	@echo 'SEED=N             of test-stress, to repeat what an earlier run did'
	@echo 'CONFIG=FILE        of deb, the kernel configuration (else that of Debian'"'"'s kernel)'
	@echo 'DEBUG_INFO=1       of deb, keep debug information and BTF, and pack it'
	@echo 'COMMITS=N-M ONLY=..  of check-series: a part (scripts/check-series --help)'
	@echo 'TEST=1 KEEP=1 ADOPT=1  of rebase: test the result; keep what was mended there in'
	@echo '                   patches/X.Y for the next time; take it over'
	@echo 'V=1                show what the tools say'
	@echo 'FORCE=1            assemble or export in spite of a refusal'

.PHONY: demo test test-stress check-series rebase bench bench-quick shell deb test-deb series assemble export
demo: setup
	@scripts/tree base
	@lab/lab demo

test: setup
	@scripts/test

test-stress: assemble
	@lab/lab stress

check-series: assemble
	@scripts/setup check-series
	@scripts/tree mail
	@scripts/check-series

# LINUX is where to go; the series comes from build/linux.
rebase: setup
	@[ -e build/tree.json ] || LINUX= scripts/tree assemble
	@scripts/rebase $(if $(filter 1,$(TEST)),--test) $(if $(filter 1,$(KEEP)),--keep) \
		$(if $(filter 1,$(ADOPT)),--adopt)

bench: setup
	@scripts/tree base
	@bench/bench

bench-quick: setup
	@scripts/tree base
	@bench/bench --quick

shell: assemble
	@lab/lab shell $(or $(ARCH),arm64)

deb: assemble
	@scripts/setup deb
	@scripts/deb

test-deb: assemble
	@scripts/setup deb deb-test
	@lab/lab deb $(ARCH)

series: assemble
	@scripts/tree mail

assemble: setup
	@scripts/tree assemble

export: setup
	@scripts/tree export

.PHONY: setup
setup:
	@scripts/setup $(filter riscv64,$(ARCH))

# build/linux may hold commits that are nowhere else.
.PHONY: clean distclean
clean:
	@scripts/tree clean

distclean:
	@scripts/tree distclean
