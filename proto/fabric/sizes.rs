// SPDX-License-Identifier: GPL-2.0

//! The sizes that a test tries: those around every boundary.

/// The most sizes of a test.
const MAX: usize = 24;

/// Sizes in bytes, each once, from small to large.
///
/// # Invariants
///
/// The first `count` of `sizes` rise, and none of them is above the largest size.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    sizes: [u32; MAX],
    count: usize,
}

impl Sizes {
    /// Sizes up to `largest`: nothing, a byte, and those around a packet of `mtu` bytes, several
    /// packets, a page of `page` bytes, several pages, and `largest` itself.
    pub fn around(mtu: u32, page: u32, largest: u32) -> Self {
        let mut this = Self {
            sizes: [0; MAX],
            count: 0,
        };
        for size in [
            Some(0),
            Some(1),
            Some(31),
            Some(32),
            largest.checked_sub(1),
            Some(largest),
        ] {
            this.insert(size, largest);
        }
        for edge in [
            Some(mtu),
            mtu.checked_mul(2),
            Some(page),
            page.checked_mul(8),
        ] {
            let Some(edge) = edge else { continue };
            for size in [edge.checked_sub(1), Some(edge), edge.checked_add(1)] {
                this.insert(size, largest);
            }
        }
        this
    }

    /// Adds `size` in its place, unless it is `None`, is there already, or is above `largest`.
    fn insert(&mut self, size: Option<u32>, largest: u32) {
        let Some(size) = size else { return };
        let known = self.sizes.get(..self.count).unwrap_or(&[]);
        if size > largest || self.count >= MAX || known.contains(&size) {
            return;
        }
        let place = known.partition_point(|other| *other < size);
        let end = self.count.wrapping_add(1);
        if let Some(tail) = self.sizes.get_mut(place..end) {
            tail.rotate_right(1);
            if let Some(free) = tail.first_mut() {
                *free = size;
            }
            // INVARIANT: The new size lies between its neighbours, and is not above the largest
            // size.
            self.count = end;
        }
    }

    /// The sizes.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.sizes.iter().take(self.count).copied()
    }
}
