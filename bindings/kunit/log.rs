// SPDX-License-Identifier: GPL-2.0

use kernel::prelude::*;

#[kunit_tests(rnbd_log)]
mod tests {
    use crate::log::RateLimit;

    #[test]
    fn a_burst_is_cut() {
        let limit = RateLimit::new();
        let allowed = (0..1000).filter(|_| limit.allow()).count();
        // One more interval may begin while this runs.
        assert!(allowed == 10 || allowed == 20);
    }

    #[test]
    fn each_place_has_its_own_limit() {
        let mut first = 0;
        let mut second = 0;
        for _ in 0..100 {
            crate::ratelimited!(first += 1);
            crate::ratelimited!(second += 1);
        }
        assert!((1..=20).contains(&first));
        assert!((1..=20).contains(&second));
    }
}
