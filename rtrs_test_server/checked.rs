// SPDX-License-Identifier: GPL-2.0

//! The transport part: compares the data of writes with a pattern, and fills reads with it.

use kernel::sync::Arc;
use kernel_ext::prelude::*;
use proto::fabric::{
    command::{
        Data,
        Header, //
    },
    fill::{
        fill,
        first_difference,
        pieces,
        STEP, //
    }, //
};
use rtrs_server::{
    Direction,
    Operation,
    Session,
    SessionHandler, //
};

/// The server. It treats all clients alike, and keeps no state of them.
pub(crate) struct Server;

impl rtrs_server::Server for Server {
    fn session_up(&self, _session: &Arc<Session>) -> Result<Arc<dyn SessionHandler>> {
        Ok(Arc::new(Self, GFP_KERNEL)?)
    }
}

impl SessionHandler for Server {
    /// Requests of a measurement are responded to at once. Comparing and filling take memory and
    /// time, so a worker of the session does that.
    fn request(&self, op: Operation, header: &[u8]) {
        match Header::parse(header) {
            None => op.respond(Err(EINVAL)),
            Some(header) if header.data == Data::Plain => {
                let len = op.data_len();
                op.respond(Ok(len));
            }
            Some(_) => op.defer(header),
        }
    }

    fn deferred(&self, op: Operation, header: &[u8]) {
        let Some(header) = Header::parse(header) else {
            return op.respond(Err(EINVAL));
        };
        let result = match op.direction() {
            Direction::Write => compare(&op, header.seed),
            Direction::Read => produce(&op, header.seed),
        };
        op.respond(result);
    }
}

/// Compares the data with the pattern. `EILSEQ` if they differ.
fn compare(op: &Operation, seed: u64) -> Result<u32> {
    let mut scratch = KVec::from_elem(0u8, STEP, GFP_KERNEL)?;
    for (place, word) in pieces(op.data_len() as usize) {
        let bytes = scratch.get_mut(..place.len()).ok_or(EINVAL)?;
        op.read_data(place.start, bytes)?;
        if first_difference(seed, word, bytes).is_some() {
            return Err(EILSEQ);
        }
    }
    Ok(0)
}

/// Fills the data of a read with the pattern. Returns their length.
fn produce(op: &Operation, seed: u64) -> Result<u32> {
    let mut scratch = KVec::from_elem(0u8, STEP, GFP_KERNEL)?;
    for (place, word) in pieces(op.data_len() as usize) {
        let bytes = scratch.get_mut(..place.len()).ok_or(EINVAL)?;
        fill(seed, word, bytes);
        op.write_response_at(place.start, bytes)?;
    }
    Ok(op.data_len())
}
