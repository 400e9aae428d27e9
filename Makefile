# SPDX-License-Identifier: GPL-2.0
#
# What a person types. Everything below is done by tools/lab; what takes long
# to make is kept outside the checkout, in $RNBD_CACHE or ~/.cache/rnbd.
#
#   make              build the modules for the stock kernel, into build/stock, and
#                     rnbdctl, into build/rnbdctl
#   make KDIR=DIR     build them for another kernel tree prepared for Rust
#   make demo         a remote disk between two virtual machines, with a report
#   make shell        the same two machines, with prompts
#   make test         all tests in their quick form, on the stock kernel and on a
#                     debug kernel; `make selftest T=NAME' runs one subject
#   make test-long    all tests in full on both kernels; takes hours. Faults come 20
#                     times on the stock kernel, a few times on the other one. It goes on
#                     where it was stopped; `PART=stock' (checks, stock, interop, packages,
#                     debug) or `T=NAME' runs a part, `AGAIN=1' what has passed before, too
#   make bench        IOPS and messages per IO in instruction time, against the
#                     C modules and NVMe; `make bench-quick' takes 3 minutes
#   make deb          the Debian packages rnbd-dkms and rnbdctl, into build/deb
#   make deb-test     install, boot, upgrade and remove them on a fresh machine
#   make fmt clippy   format, lint; `fmt-check' changes nothing, `lint' is clippy, ruff, mypy and more
#   make host-test    the tests that need no kernel
#   make setup        all that the others set up when they need it
#   make clean        delete what was built here; not the cache
#
# Kbuild reads the file Kbuild beside this one instead.

MAKEFLAGS += --no-print-directory
KERNEL ?= stock
LAB := PYTHONPATH=$(CURDIR)/tools PYTHONDONTWRITEBYTECODE=1 python3 -m lab

.PHONY: modules setup build fmt fmt-check clippy lint host-test rust-analyzer
.PHONY: deb deb-test
.PHONY: bench bench-quick demo shell selftest test test-long clean python

modules: python
	@$(LAB) setup --for $(if $(filter debug,$(KERNEL)),debug,build)
	@$(LAB) build --kernel $(KERNEL) $(if $(KDIR),--kdir $(KDIR)) $(if $(KUNIT),--kunit)

setup: python
	@$(LAB) setup

fmt fmt-check clippy lint host-test rust-analyzer: python
	@$(LAB) setup --for $(if $(filter clippy lint,$@),lint,build)
	@$(LAB) $(subst -check, --check,$(subst clippy,lint,$@))

demo shell: python
	@$(LAB) setup --for demo
	@$(LAB) build
	@$(LAB) $@

bench bench-quick: python
	@$(LAB) setup --for test
	@$(LAB) build
	@$(LAB) bench $(if $(findstring quick,$@),--quick)

deb deb-test: python
	@$(LAB) setup --for $@
	@$(LAB) $@

selftest: python
	@$(LAB) setup --for $(if $(filter debug,$(KERNEL)),debug,test)
	@$(LAB) build --kernel $(KERNEL)
	@$(if $(filter debug,$(KERNEL)),$(LAB) build --kernel debug --kunit)
	@$(LAB) selftest --kernel $(KERNEL) $(if $(T),-T '$(T)')

test: python
	@$(LAB) test

test-long: python
	@$(LAB) test --long $(foreach p,$(PART),--part $p) $(if $(T),-T '$(T)') $(if $(AGAIN),--again)

clean:
	rm -rf build target proto/target rust-project.json

# A fresh Debian has no Python; the set-up itself installs the rest.
python:
	@command -v python3 >/dev/null || { apt-get -q update && apt-get -qy install python3; }
