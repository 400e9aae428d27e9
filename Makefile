# SPDX-License-Identifier: GPL-2.0
#
# What a person types. Everything below is done by tools/lab; what takes long
# to make is kept outside the checkout, in $RNBD_CACHE or ~/.cache/rnbd.
#
#   make              build the modules for the stock kernel, into build/stock, and
#                     rnbdctl, into build/rnbdctl
#   make KERNEL=7.2   build them for the stock kernel of another series; `KERNEL=sid' for that of
#                     Debian sid; `ARCH=arm64' for another architecture. All are for `make demo', `shell' and `selftest', too
#   make KDIR=DIR     build them for another kernel tree prepared for Rust
#   make demo         a remote disk between two virtual machines, with a report
#   make shell        the same two machines, with prompts
#   make test         all tests in their quick form, on the stock kernel and on a
#                     debug kernel, and some on each other kernel that the modules are
#                     made for; `make selftest T=NAME' runs one subject
#   make test-long    all tests in full on all kernels; takes hours. Faults come 20
#                     times on the newest stock kernel, five times on the others. It goes
#                     on where it was stopped; `PART=stock' (checks, stock, interop, packages,
#                     debug, 7.2, arm64 ...) or `T=NAME' runs a part, `AGAIN=1' what has
#                     passed before, too
#   make hostile      peers that lie, made up by a generator, against each end beside an honest
#                     client; `SECONDS=600' of each, or `MESSAGES=1000000' of each over all runs,
#                     `SEED=7', `ROUND=123' to begin with
#   make bench        IOPS and messages per IO in instruction time, against the C modules, NVMe,
#                     iSER, SRP, NVMe/TCP, iSCSI and md RAID1; `make bench-quick' takes 3 minutes;
#                     `make bench-full' has the C modules and NVMe with more CPUs, disks and sizes
#   make canary       what of this does not compile with the newest kernel that any Debian
#                     suite has; nothing is run
#   make deb          the Debian packages rnbd-dkms, rnbdctl and rnbd-csi, into build/deb
#   make deb-test     install, boot, upgrade and remove them on a fresh machine
#   make first-hour   the commands of Documentation/first-hour.md on a server and two clients;
#                     part of `make test-long'
#   make cluster-test  the recipes of Documentation/clusters.md, with Pacemaker and QEMU on
#                     two machines and a server; part of `make test-long'
#   make fmt clippy   format, lint; `fmt-check' changes nothing, `lint' is clippy, ruff, mypy and more
#   make host-test    the tests that need no kernel
#   make setup        all that the others set up when they need it
#   make clean        delete what was built here; not the cache
#
# Kbuild reads the file Kbuild beside this one instead.

MAKEFLAGS += --no-print-directory
KERNEL ?= stock
# The kernel that is meant, by the name that tools/lab has for it.
NAME := $(KERNEL)$(if $(filter-out amd64,$(ARCH)),-$(ARCH))
LAB := PYTHONPATH=$(CURDIR)/tools PYTHONDONTWRITEBYTECODE=1 python3 -m lab

.PHONY: modules setup build fmt fmt-check clippy lint host-test rust-analyzer
.PHONY: deb deb-test cluster-test first-hour
.PHONY: bench bench-full bench-quick canary demo hostile shell selftest test test-long clean python

modules: python
	@$(LAB) setup --for build --kernel $(NAME)
	@$(LAB) build --kernel $(NAME) $(if $(KDIR),--kdir $(KDIR)) $(if $(KUNIT),--kunit)

setup: python
	@$(LAB) setup

fmt fmt-check clippy lint host-test rust-analyzer: python
	@$(LAB) setup --for $(if $(filter clippy lint,$@),lint,build)
	@$(LAB) $(subst -check, --check,$(subst clippy,lint,$@))

demo shell: python
	@$(LAB) setup --for demo --kernel $(NAME)
	@$(LAB) build --kernel $(NAME)
	@$(LAB) $@ --kernel $(NAME)

bench bench-full bench-quick: python
	@$(LAB) setup --for test
	@$(LAB) build
	@$(LAB) bench $(if $(findstring full,$@),,$(if $(findstring quick,$@),--quick,--everybody))

canary: python
	@$(LAB) canary

deb deb-test: python
	@$(LAB) setup --for $@
	@$(LAB) $@

hostile: python
	@$(LAB) setup --for test --kernel $(NAME)
	@$(LAB) build --kernel $(NAME)
	@HOSTILE_SECONDS=$(SECONDS) HOSTILE_MESSAGES=$(MESSAGES) HOSTILE_SEED=$(SEED) HOSTILE_ROUND=$(ROUND) \
		$(LAB) selftest --kernel $(NAME) -T campaign

cluster-test: python
	@$(LAB) setup --for $@
	@$(LAB) build
	@$(LAB) $@

first-hour: python
	@$(LAB) setup --for $@
	@$(LAB) $@

selftest: python
	@$(LAB) setup --for test --kernel $(NAME)
	@$(LAB) build --kernel $(NAME)
	@$(if $(filter debug,$(KERNEL)),$(LAB) build --kernel $(NAME) --kunit)
	@$(LAB) selftest --kernel $(NAME) $(if $(T),-T '$(T)')

test: python
	@$(LAB) test

test-long: python
	@$(LAB) test --long $(foreach p,$(PART),--part $p) $(if $(T),-T '$(T)') $(if $(AGAIN),--again)

clean:
	rm -rf build target proto/target rust-project.json

# A fresh Debian has no Python; the set-up itself installs the rest.
python:
	@command -v python3 >/dev/null || { apt-get -q update && apt-get -qy install python3; }
