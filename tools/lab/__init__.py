# SPDX-License-Identifier: GPL-2.0
"""The project's laboratory: build root, kernels, guest images, virtual machines.

Everything it makes is kept outside the checkout (see `lab.cache`), so that a
clean checkout on the same machine starts warm.
"""
