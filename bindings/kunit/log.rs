// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_log)]
mod tests {
    use crate::print::RateLimit;

    #[test]
    fn a_burst_is_cut() {
        let limit = RateLimit::new();
        let allowed = (0..1000).filter(|_| limit.allow()).count();
        // A further interval may begin while the test runs.
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
        // There may be no line if the suite ran a moment ago, as the limit belongs to the place in
        // the code.
        assert!(lines <= 20);
    }
}
