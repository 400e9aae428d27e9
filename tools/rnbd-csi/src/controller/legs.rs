// SPDX-License-Identifier: GPL-2.0

//! The sizes of a mirrored volume and of its legs.
//!
//! md keeps a part of each leg for itself: its superblock and bitmap, and room at the beginning,
//! which mdadm makes 0.1% of the leg and 128 MiB at most. What a leg has left is counted here a bit
//! too small, so that a mirror always has what its volume is said to have.

/// What md needs in any case, with room to spare.
const FIXED: u64 = 4 << 20;
/// mdadm leaves out that part of a leg.
const PART: u64 = 1024;
/// But not more than so many bytes.
const MOST: u64 = 128 << 20;

/// The bytes that a mirror of legs of that size has at least.
pub(crate) fn usable(leg: u64) -> u64 {
    let part = leg.div_ceil(PART).min(MOST);
    leg.saturating_sub(FIXED).saturating_sub(part)
}

/// The bytes that a leg needs for a mirror of `bytes`; `u64::MAX` if no leg is so large.
pub(crate) fn needed(bytes: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let with = bytes.saturating_add(FIXED);
    let part = with.div_ceil(PART.saturating_sub(1)).saturating_add(1);
    with.saturating_add(part.min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_has_room_for_its_volume() {
        for bytes in [
            1,
            4096,
            1 << 20,
            (64 << 20) + 1,
            1 << 30,
            (128 << 30) - 1,
            128 << 30,
            1 << 40,
            1 << 50,
        ] {
            let leg = needed(bytes);
            assert!(usable(leg) >= bytes, "{bytes}: {leg}");
            assert!(leg - bytes <= (133 << 20), "{bytes}: {leg}");
            assert!(usable(leg - 4) < bytes + 8192, "{bytes}: {leg}");
        }
        assert_eq!((usable(0), usable(1 << 20), needed(0)), (0, 0, 0));
        assert_eq!(needed(u64::MAX), u64::MAX);
    }
}
