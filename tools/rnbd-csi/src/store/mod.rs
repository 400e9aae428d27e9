// SPDX-License-Identifier: GPL-2.0

//! Where a server keeps its volumes: as files in a folder, or as logical volumes of LVM.

mod files;
mod lvm;
pub(crate) mod name;

use std::path::PathBuf;

pub(crate) use files::Files;
pub(crate) use lvm::Lvm;

use crate::grpc::Result;

/// A volume that is there as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// A name that [`name::of`] or [`name::of_leg`] gives.
    pub(crate) name: String,
    /// Its size.
    pub(crate) bytes: u64,
}

/// Whether a node has a volume mapped.
pub(crate) type IsMapped<'a> = dyn Fn(&Stored) -> Result<bool> + 'a;

/// What keeps volumes. A volume appears as a whole, of zeroes, and with all the room that it needs;
/// whatever is left of one that was not finished is never taken for a volume.
pub(crate) trait Store: Send + Sync {
    /// All volumes.
    fn list(&self) -> Result<Vec<Stored>>;

    /// The volume of that name.
    fn find(&self, name: &str) -> Result<Option<Stored>> {
        let mut found = self.list()?;
        found.retain(|stored| stored.name == name);
        Ok(found.pop())
    }

    /// Makes a volume that is not there, of whole units.
    fn create(&self, name: &str, bytes: u64) -> Result<Stored>;

    /// Makes a volume larger; gives its size.
    fn grow(&self, stored: &Stored, bytes: u64) -> Result<u64>;

    /// Deletes a volume; gives false if a node has mapped it meanwhile, and leaves it then.
    fn delete(&self, stored: &Stored, is_mapped: &IsMapped<'_>) -> Result<bool>;

    /// How many bytes are free.
    fn available(&self) -> Result<u64>;

    /// Sizes are multiples of it.
    fn unit(&self) -> Result<u64>;

    /// Where the volume of that name is.
    fn path(&self, name: &str) -> PathBuf;

    /// Tidies up what a driver that was killed has left.
    fn tidy(&self, is_mapped: &IsMapped<'_>) -> Result;
}
