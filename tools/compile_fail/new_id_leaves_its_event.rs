// SPDX-License-Identifier: GPL-2.0

//! The id of a request for a connection is kept beyond the event that brought it.

use kernel_ext::rdma::cm::{Event, NewId};

/// The mistake.
pub fn keep<'a>(event: Event<'_>, place: &mut Option<NewId<'a>>) {
    if let Event::ConnectRequest { id, .. } = event {
        *place = Some(id); //~ E0621
    }
}
