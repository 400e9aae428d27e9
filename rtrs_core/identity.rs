// SPDX-License-Identifier: GPL-2.0

//! The keys by which clients prove their identity, and the kernel's HMAC for [`proto::handshake`].
//!
//! `rnbdctl key load` puts the keys into the keyring of the user root, from where user space cannot
//! read them. The keyring outlives the modules.

use core::hint::black_box;

use kernel::sync::Arc;
use kernel_ext::{
    crypto,
    keyring::Keyring,
    prelude::*,
    random,
    sync::rcu::RcuArc, //
};
use proto::{
    addr::Address,
    auth_keys::{
        client_description,
        server_description,
        Key,
        KeySet,
        Secret, //
    },
    client_id::ClientId,
    handshake::{
        Mac,
        Refusal, //
    },
    rtrs::{
        Code,
        Nonce, //
    }, //
};

/// The kernel's HMAC-SHA-256. Its methods may be called in any context.
pub struct KernelMac;

impl Mac for KernelMac {
    fn code(&self, key: &Secret, message: &[u8]) -> Code {
        crypto::hmac_sha256(key.as_bytes(), message)
    }

    fn is_same(&self, one: &[u8], other: &[u8]) -> bool {
        crypto::is_same(one, other)
    }
}

/// A random number for a handshake. Any context.
pub fn nonce() -> Nonce {
    let mut nonce = Nonce::default();
    random::fill(&mut nonce);
    nonce
}

/// Root's keyring, set while the module is loaded.
static KEYRING: RcuArc<Keyring> = RcuArc::empty();

/// Keeps root's keyring while the module is loaded.
pub(crate) struct KeyringOwner;

impl KeyringOwner {
    /// Looks the keyring up. Sleeps.
    ///
    /// If that fails, a line in the log says so. Then no keys are found; all else works.
    pub(crate) fn new() -> Result<Self> {
        match Keyring::of_root() {
            Ok(keyring) => drop(KEYRING.replace(Some(Arc::new(keyring, GFP_KERNEL)?))),
            Err(error) => pr_warn!(
                "root's keyring cannot be used ({:?}): this machine cannot prove its identity, nor \
                 check a client's\n",
                error
            ),
        }
        Ok(Self)
    }
}

impl Drop for KeyringOwner {
    fn drop(&mut self) {
        drop(KEYRING.replace(None));
    }
}

/// Reads the keys with this description and gives them to `f`. Sleeps. `ENOKEY` if there are no
/// keys, `EINVAL` if the keyring has something else under that description.
fn with_keys<T>(description: &CStr, f: impl FnOnce(&KeySet<'_>) -> Option<T>) -> Result<T> {
    let keyring = KEYRING.get().ok_or(ENOKEY)?;
    let mut bytes = [0; KeySet::MAX_LEN];
    let len = keyring.read_logon_key(description, &mut bytes)?;
    let result = match KeySet::parse(bytes.get(..len).unwrap_or(&[])) {
        Ok(keys) => f(&keys).ok_or(ENOKEY),
        Err(error) => {
            kernel_ext::pr_err_ratelimited!(
                "the key {:?} {}\n",
                description,
                error.message().as_str()
            );
            Err(EINVAL)
        }
    };
    bytes.fill(0);
    // Keeps the compiler from leaving out the zeroes.
    black_box(&bytes);
    result
}

/// Returns key `number` of `client`, of the keys that this machine has as a server. Sleeps.
///
/// [`Refusal::UnknownClient`] if the keyring has no valid keys of `client`,
/// [`Refusal::UnknownKey`] if it has keys, and none has this number.
pub fn key_of_client(client: &ClientId, number: u32) -> Result<Key, Refusal> {
    let description = server_description(client);
    let mut is_known = false;
    with_keys(description.as_cstr(), |keys| {
        is_known = keys.client() == client;
        is_known.then(|| keys.find(number)).flatten()
    })
    .map_err(|_| {
        if is_known {
            Refusal::UnknownKey(*client, number)
        } else {
            Refusal::UnknownClient(*client)
        }
    })
}

/// This machine's name and newest key for the server at `server`. Nothing if there is no key.
/// Sleeps.
///
/// Returns the keyring's error if there is a key that is no longer valid: a client that had a key
/// does not connect without a proof.
pub fn own_key(server: &Address) -> Result<Option<(ClientId, Key)>> {
    for description in [client_description(Some(server)), client_description(None)] {
        let own = with_keys(description.as_cstr(), |keys| {
            Some((*keys.client(), keys.newest()?))
        });
        match own {
            Err(error) if error == ENOKEY => {}
            own => return own.map(Some),
        }
    }
    Ok(None)
}
