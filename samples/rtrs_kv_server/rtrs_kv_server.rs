// SPDX-License-Identifier: GPL-2.0

//! Values by key, for remote clients: how `rtrs_server` is used (`Documentation/rtrs-api.md`).
//!
//! The header of a request is a key. A write stores its data as the key's value; a read gets the
//! length of the value, 4 bytes little-endian, and the value.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing, unsafe_code)]

use kernel::new_mutex;
use kernel::sync::{Arc, Mutex};
use kernel_ext::prelude::*;
use rtrs_server::{Direction, Listener, Operation, Server, Session, SessionHandler};

/// The most values. It limits the memory that clients can have the server take.
const MAX_VALUES: usize = 64;

module! {
    type: KvServer,
    name: "rtrs_kv_server",
    authors: ["The RNBD in Rust developers"],
    description: "Values by key, for remote clients: a sample for rtrs_server",
    license: "GPL",
}

/// The module. Dropping the listener closes all sessions.
struct KvServer {
    _listener: Listener,
}

impl kernel::Module for KvServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let values = new_mutex!(KVec::new(), "rtrs_kv_server::Store");
        let store = Store(Arc::pin_init(values, GFP_KERNEL)?);
        let _listener = Listener::open(Arc::new(store, GFP_KERNEL)?, 1235)?;
        Ok(Self { _listener })
    }
}

/// A key and its value.
type Entry = (KVec<u8>, KVVec<u8>);

/// All keys with their values, which the sessions share.
#[derive(Clone)]
struct Store(Arc<Mutex<KVec<Entry>>>);

impl Server for Store {
    fn session_up(&self, _session: &Arc<Session>) -> Result<Arc<dyn SessionHandler>> {
        Ok(Arc::new(self.clone(), GFP_KERNEL)?)
    }
}

impl SessionHandler for Store {
    /// This must not sleep, but memory and the mutex need that. So a worker of the session goes on.
    fn request(&self, op: Operation, key: &[u8]) {
        op.defer(key);
    }

    fn deferred(&self, op: Operation, key: &[u8]) {
        let result = match op.direction() {
            Direction::Write => self.put(&op, key),
            Direction::Read => self.get(&op, key),
        };
        op.respond(result);
    }
}

impl Store {
    fn put(&self, op: &Operation, key: &[u8]) -> Result<u32> {
        let mut value = KVVec::from_elem(0, op.data_len() as usize, GFP_KERNEL)?;
        op.read_data(0, &mut value)?;
        let mut name = KVec::new();
        name.extend_from_slice(key, GFP_KERNEL)?;
        let mut values = self.0.lock();
        values.reserve(1, GFP_KERNEL)?;
        values.retain(|(known, _)| known != key);
        if values.len() == MAX_VALUES {
            return Err(ENOSPC);
        }
        values.push((name, value), GFP_KERNEL)?;
        Ok(0)
    }

    /// Returns the length of the response.
    fn get(&self, op: &Operation, key: &[u8]) -> Result<u32> {
        let values = self.0.lock();
        let (_, value) = values
            .iter()
            .find(|(known, _)| known == key)
            .ok_or(ENOENT)?;
        let len = u32::try_from(value.len())?;
        op.write_response(&len.to_le_bytes())?;
        op.write_response_at(size_of::<u32>(), value)?;
        len.checked_add(size_of::<u32>() as u32).ok_or(EMSGSIZE)
    }
}
