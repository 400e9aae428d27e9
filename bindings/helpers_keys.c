// SPDX-License-Identifier: GPL-2.0
/*
 * Callable forms of what the kernel has for keys; see helpers.h.
 */

#include <crypto/sha2.h>
#include <crypto/utils.h>
#include <keys/user-type.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/export.h>
#include <linux/key.h>
#include <linux/keyctl.h>
#include <linux/string.h>

#include "helpers.h"

#ifdef CONFIG_KEYS

struct key *rnbd_helper_root_user_keyring(void)
{
	key_ref_t keyring;

	/* Whatever process has the module loaded. */
	scoped_with_kernel_creds()
		keyring = lookup_user_key(KEY_SPEC_USER_KEYRING, KEY_LOOKUP_CREATE,
					  KEY_NEED_SEARCH);
	return IS_ERR(keyring) ? ERR_CAST(keyring) : key_ref_to_ptr(keyring);
}
EXPORT_SYMBOL_GPL(rnbd_helper_root_user_keyring);

ssize_t rnbd_helper_logon_key_read(struct key *keyring, const char *description, u8 *buf,
				   size_t size)
{
	const struct user_key_payload *payload;
	key_ref_t found;
	struct key *key;
	ssize_t ret;

	found = keyring_search(make_key_ref(keyring, true), &key_type_logon, description, false);
	if (IS_ERR(found))
		return PTR_ERR(found);
	key = key_ref_to_ptr(found);
	down_read(&key->sem);
	ret = key_validate(key);
	if (ret)
		goto out;
	payload = user_key_payload_locked(key);
	if (!payload) {
		ret = -EKEYREVOKED;
	} else if (payload->datalen > size) {
		ret = -EMSGSIZE;
	} else {
		memcpy(buf, payload->data, payload->datalen);
		ret = payload->datalen;
	}
out:
	up_read(&key->sem);
	key_put(key);
	return ret;
}
EXPORT_SYMBOL_GPL(rnbd_helper_logon_key_read);

void rnbd_helper_key_put(struct key *key)
{
	key_put(key);
}
EXPORT_SYMBOL_GPL(rnbd_helper_key_put);

#else

/* A kernel without keys is as one whose keyrings are empty. */
struct key *rnbd_helper_root_user_keyring(void)
{
	return ERR_PTR(-ENOKEY);
}
EXPORT_SYMBOL_GPL(rnbd_helper_root_user_keyring);

ssize_t rnbd_helper_logon_key_read(struct key *keyring, const char *description, u8 *buf,
				   size_t size)
{
	return -ENOKEY;
}
EXPORT_SYMBOL_GPL(rnbd_helper_logon_key_read);

void rnbd_helper_key_put(struct key *key)
{
}
EXPORT_SYMBOL_GPL(rnbd_helper_key_put);

#endif

void rnbd_helper_hmac_sha256(const u8 *key, size_t key_len, const u8 *data, size_t data_len,
			     u8 *out)
{
	hmac_sha256_usingrawkey(key, key_len, data, data_len, out);
}
EXPORT_SYMBOL_GPL(rnbd_helper_hmac_sha256);

bool rnbd_helper_crypto_memneq(const u8 *one, const u8 *other, size_t size)
{
#if IS_REACHABLE(CONFIG_CRYPTO_LIB_UTILS)
	return crypto_memneq(one, other, size);
#else
	u8 differ = 0;

	while (size--) {
		differ |= one[size] ^ other[size];
		OPTIMIZER_HIDE_VAR(differ);
	}
	return differ;
#endif
}
EXPORT_SYMBOL_GPL(rnbd_helper_crypto_memneq);
