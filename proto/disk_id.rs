// SPDX-License-Identifier: GPL-2.0

//! How the server recognises a disk that was not open for some time.

use crate::rnbd::Wwid;

/// Tells a disk from the other disks of a server. `P` is the place of a disk, such as its device
/// number. Two disks never have the same place at once, but a later disk may have the place of an
/// earlier disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskId<P> {
    /// The place where the disk is now.
    pub place: P,
    /// The worldwide name, if the disk has one.
    pub wwid: Wwid,
    /// A number that tells the disk from earlier disks at the same place.
    pub sequence: u64,
}

impl<P: PartialEq> DiskId<P> {
    /// Whether both are the same disk. If both have worldwide names, the names decide, wherever the
    /// disk is; otherwise place and sequence decide.
    pub fn is_same_as(&self, other: &Self) -> bool {
        if self.wwid.is_empty() || other.wwid.is_empty() {
            self.place == other.place && self.sequence == other.sequence
        } else {
            self.wwid == other.wwid
        }
    }

    /// Whether this disk is gone for good, because `new` has its place. A disk with a worldwide
    /// name may come back at another place.
    pub fn is_replaced_by(&self, new: &Self) -> bool {
        self.wwid.is_empty() && self.place == new.place && !self.is_same_as(new)
    }
}

/// Several known disks are the same as a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// The position in `known` of the disk that `new` is; `None` if that disk is not known.
///
/// [`Ambiguous`] if two known disks turn out to be `new`: the disk was known by its place before
/// its name could be read, and is known by its name from another place.
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
