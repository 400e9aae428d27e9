// SPDX-License-Identifier: GPL-2.0

//! Sessions: what the paths of one client have in common.

use kernel::str::CStr;

/// A client, with the chunks that it writes its requests to and the paths it comes by.
pub struct Session {
    queue_depth: u32,
    max_io_size: u32,
}

impl Session {
    /// The name that the client gave the session.
    pub fn name(&self) -> &CStr {
        c""
    }

    /// The number of chunks, hence of requests in flight.
    pub fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    /// The most data of one request, in bytes.
    pub fn max_io_size(&self) -> u32 {
        self.max_io_size
    }
}
