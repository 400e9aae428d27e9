// SPDX-License-Identifier: GPL-2.0

//! Pages from which several sessions send the same short data; one page for each tag.
//!
//! Data that is copied anyway is copied once for all of these sessions, not once for each. As with
//! a bounce buffer, each incarnation of a path has the pages mapped as long as it lasts. So a write
//! needs no mapping, no registration, and no completion of the send. The user may write to a page
//! again when the server has responded, or when the request was given up, which only happens when
//! its path is drained. A request that is abandoned has not ended: its user leaves the page alone
//! until it has ended.
//!
//! A server that acknowledges a write before its device has received all of it gets the later
//! content of the page: data of the same tag. So the user writes no data to the page that any of
//! the servers must not get.

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
    /// Has the paths of the session map `pages`: the paths that are up, and paths that come up
    /// later. Page *n* is for the requests of tag *n*. Sleeps.
    ///
    /// [`Self::send_from_memory()`] then sends data that
    /// [`set_page()`](kernel_ext::scatterlist::ScatterTable::set_page) describes without mapping it
    /// again. A path for which the mapping fails, or that has other pages, maps the memory for each
    /// request. The session keeps the pages that it was given last.
    pub fn share_pages(&self, pages: &Arc<SendPages>) {
        // A path that comes up looks for the pages under the same lock before requests are sent on
        // it. So the path finds the pages, or is found here.
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
        // The connections themselves are not held: the teardown decides when they end.
        let set = path.connections(&guard);
        set.map(|set| set.incarnation.clone())
    };
    if let Some(requests) = incarnation.as_ref().and_then(|one| one.requests()) {
        requests.share(pages);
    }
}
