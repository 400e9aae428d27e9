// SPDX-License-Identifier: GPL-2.0

//! Pages from which several sessions send the same short data; a page for each tag.
//!
//! Data that is copied anyway is copied once, for all of these sessions, and not once for each. As
//! with a bounce buffer, each incarnation of a path has the pages mapped as long as it lasts, so
//! that a write needs no mapping, no registration, and no completion of the send: the user may
//! write to a page again when the server has responded, or when the request was given up, which
//! only happens when its path is drained. A request that is abandoned has not ended: its user
//! leaves the page alone until it has.
//!
//! A server that acknowledges a write before its device has received all of it gets what is in the
//! page then: data of the same tag. So the user puts nothing there that one of the servers must not
//! have.

use kernel::sync::{
    rcu,
    Arc, //
};
use kernel_ext::{
    mm::without_io,
    page::send::SendPages, //
};

use crate::{
    path::Path,
    session::Session, //
};

impl Session {
    /// Has the paths of the session map `pages`, those that are up and those that will be: page *n*
    /// is for the requests of tag *n*. Sleeps.
    ///
    /// [`Self::send_from_memory()`] then sends what
    /// [`set_page()`](kernel_ext::scatterlist::ScatterTable::set_page) describes without mapping it
    /// again. A path for which that fails, or has other pages, maps the memory for each request.
    /// The session keeps the pages that it was given last.
    pub fn share_pages(&self, pages: &Arc<SendPages>) {
        // A path that comes up looks for the pages under the same lock before requests are sent on
        // it, so either it finds them, or it is found here.
        without_io(|| {
            let mut shared = self.shared_pages.lock();
            *shared = Some(pages.clone());
            for path in self.paths.get().iter().flat_map(|paths| paths.iter()) {
                share(path, pages);
            }
        })
    }
}

/// Has the connections of `path` map `pages`, if it has connections. Sleeps.
fn share(path: &Path, pages: &Arc<SendPages>) {
    let incarnation = {
        let guard = rcu::read_lock();
        // Not the connections themselves, whose end the teardown decides.
        let set = path.connections(&guard);
        set.map(|set| set.incarnation.clone())
    };
    if let Some(requests) = incarnation.as_ref().and_then(|one| one.requests()) {
        requests.share(pages);
    }
}
