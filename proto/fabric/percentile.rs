// SPDX-License-Identifier: GPL-2.0

//! Percentiles of many measurements.

/// Sorts numbers, from small to large (heapsort).
///
/// The sort of `core` is long, and the kernel's checks of object files do not follow all of it.
pub fn sort(numbers: &mut [u32]) {
    for root in (0..numbers.len() / 2).rev() {
        sift_down(numbers, root);
    }
    for end in (1..numbers.len()).rev() {
        numbers.swap(0, end);
        if let Some(heap) = numbers.get_mut(..end) {
            sift_down(heap, 0);
        }
    }
}

/// Moves the number at `root` of a heap down to its place.
fn sift_down(heap: &mut [u32], mut root: usize) {
    loop {
        // A slice has at most `isize::MAX` bytes, so its numbers do not wrap around.
        let left = root.wrapping_mul(2).wrapping_add(1);
        let right = left.wrapping_add(1);
        // `None`, for a place behind the end, is less than any number.
        let child = match heap.get(right) > heap.get(left) {
            true => right,
            false => left,
        };
        if heap.get(child) <= heap.get(root) {
            return;
        }
        heap.swap(root, child);
        root = child;
    }
}

/// The number below which `per_ten_thousand` of the sorted numbers lie; `None` if there are none.
///
/// 5000 is the median, 9990 is p99.9. More than 10000 counts as 10000, the largest number.
pub fn percentile(sorted: &[u32], per_ten_thousand: u32) -> Option<u32> {
    let share = u64::from(per_ten_thousand.min(10_000));
    let place = (sorted.len() as u64).checked_mul(share)? / 10_000;
    let number = sorted.get(place as usize).or_else(|| sorted.last());
    number.copied()
}
