// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_static_key)]
mod tests {
    use crate::static_key::{
        ClientTimes,
        ServerTimes, //
    };

    // Each test has a key of its own, as tests may run concurrently.

    #[test]
    fn a_key_is_on_while_it_has_users() {
        assert!(!ClientTimes::is_on());
        let first = ClientTimes::new();
        assert!(ClientTimes::is_on());
        let second = ClientTimes::new();
        drop(first);
        assert!(ClientTimes::is_on());
        drop(second);
        assert!(!ClientTimes::is_on());
    }

    #[test]
    fn a_key_can_be_switched_on_again() {
        for _ in 0..3 {
            assert!(!ServerTimes::is_on());
            let user = ServerTimes::new();
            assert!(ServerTimes::is_on());
            drop(user);
        }
        assert!(!ServerTimes::is_on());
    }
}
