// SPDX-License-Identifier: GPL-2.0

//! The handles by which callers in C name their groups. The handle of a closed group finds nothing.

use kernel::sync::Arc;
use kernel_ext::{
    c_caller::{
        Handle,
        HandleTable, //
    },
    prelude::*, //
};

use crate::user_group::{
    Opened,
    UserGroup, //
};

/// The most groups at a time.
const MAX_GROUPS: u16 = 1024;

static GROUPS: HandleTable<UserGroup> = HandleTable::new();

/// Makes room for groups. Sleeps.
pub(crate) fn begin() -> Result {
    GROUPS.begin(MAX_GROUPS)
}

/// Takes the room away, and closes groups that were left open. Sleeps.
pub(crate) fn end() {
    GROUPS.end();
}

/// Makes a handle of a group, which `open` then opens. If `open` fails, returns its error and makes
/// no handle. Sleeps. `ENODEV` while the module is being loaded or unloaded, `ENFILE` if there are
/// too many groups.
pub(crate) fn open(open: impl FnOnce(&UserGroup) -> Result) -> Result<Handle> {
    let group = Arc::new(UserGroup::new(), GFP_KERNEL)?;
    // The handle comes first, as nothing can be undone when the group is open.
    let handle = GROUPS.insert(group.clone())?;
    if let Err(error) = open(&group) {
        drop(GROUPS.remove(handle));
        return Err(error);
    }
    Ok(handle)
}

/// The group of a handle, if it is open. Any context.
pub(crate) fn find(group: Handle) -> Option<Arc<UserGroup>> {
    GROUPS.find(group)
}

/// Calls `use_it` with a group. `ENODEV` if it is closed. Any context; `use_it` must not sleep.
#[inline]
pub(crate) fn with_group<R>(group: Handle, use_it: impl FnOnce(&Opened) -> Result<R>) -> Result<R> {
    GROUPS.with(group, |found| use_it(found.opened()?))
}

/// Closes a group, if it is open. Sleeps.
///
/// Until all permits were given back functions still find the group. Confirmations and callers that
/// hold permits need that.
pub(crate) fn close(group: Handle) {
    if let Some(found) = find(group) {
        found.close();
    }
    // If several callers close the group, one of them takes it out.
    drop(GROUPS.remove(group));
}
