// SPDX-License-Identifier: GPL-2.0
/*
 * Static keys of our own; see helpers.h. Code in all modules looks at them, so they are defined in
 * C, as the macro of the kernel crate wants it.
 */

#include <linux/export.h>
#include <linux/jump_label.h>

#include "helpers.h"

struct rnbd_static_key rnbd_client_times_key = { .key = STATIC_KEY_FALSE_INIT };
EXPORT_SYMBOL_GPL(rnbd_client_times_key);

struct rnbd_static_key rnbd_server_times_key = { .key = STATIC_KEY_FALSE_INIT };
EXPORT_SYMBOL_GPL(rnbd_server_times_key);

void rnbd_helper_static_key_inc(struct rnbd_static_key *key)
{
	static_branch_inc(&key->key);
}
EXPORT_SYMBOL_GPL(rnbd_helper_static_key_inc);

void rnbd_helper_static_key_dec(struct rnbd_static_key *key)
{
	static_branch_dec(&key->key);
}
EXPORT_SYMBOL_GPL(rnbd_helper_static_key_dec);
