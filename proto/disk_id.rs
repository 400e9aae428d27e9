// SPDX-License-Identifier: GPL-2.0

//! How the server knows a disk again that nobody has had open for some time.

use crate::rnbd::Wwid;

/// What tells a disk from the other disks of a server. `P` is the place of a disk, such as its
/// device number: no two disks have the same place at once, but one after the other may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskId<P> {
    /// Where the disk is now.
    pub place: P,
    /// The name in the world, if the disk has one.
    pub wwid: Wwid,
    /// A number that tells the disk from those that have had its place before.
    pub sequence: u64,
}

impl<P: PartialEq> DiskId<P> {
    /// Whether both are the same disk: their names in the world decide, wherever the disk is; and
    /// if one of them has none, place and sequence.
    pub fn is_same_as(&self, other: &Self) -> bool {
        if self.wwid.is_empty() || other.wwid.is_empty() {
            self.place == other.place && self.sequence == other.sequence
        } else {
            self.wwid == other.wwid
        }
    }

    /// Whether this disk cannot be found any more, as `new` has its place. A disk with a name in
    /// the world may come again elsewhere.
    pub fn is_replaced_by(&self, new: &Self) -> bool {
        self.wwid.is_empty() && self.place == new.place && !self.is_same_as(new)
    }
}

/// Several known disks are the same as a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// The position of the known disk that `new` is; `None` if it is none of them.
///
/// [`Ambiguous`] if a disk was known by its place before its name could be read, and another place
/// of the same disk is known by the name.
pub fn find<'a, P: PartialEq + 'a>(
    known: impl Iterator<Item = &'a DiskId<P>>,
    new: &DiskId<P>,
) -> Result<Option<usize>, Ambiguous> {
    let mut same = known
        .enumerate()
        .filter(|(_, known)| known.is_same_as(new))
        .map(|(position, _)| position);
    match (same.next(), same.next()) {
        (found, None) => Ok(found),
        _ => Err(Ambiguous),
    }
}
