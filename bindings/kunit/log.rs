// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_log)]
mod tests {
    use crate::print::RateLimit;

    #[test]
    fn a_burst_is_cut() {
        let limit = RateLimit::new();
        let allowed = (0..1000).filter(|_| limit.allow()).count();
        // One more interval may begin while this runs.
        assert!((10..=20).contains(&allowed));
    }

    #[test]
    fn each_limit_counts_for_itself() {
        let first = RateLimit::new();
        let second = RateLimit::new();
        while first.allow() {}
        assert!(second.allow());
    }

    #[test]
    fn the_macro_limits() {
        let mut lines = 0;
        for _ in 0..1000 {
            crate::ratelimited!(lines += 1);
        }
        // None if the suite ran a moment ago: the place in the code remembers.
        assert!(lines <= 20);
    }
}
