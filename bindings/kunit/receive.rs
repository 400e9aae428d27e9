// SPDX-License-Identifier: GPL-2.0

use super::*;

#[kunit_tests(rnbd_rdma_receive)]
mod cases {
    use super::*;

    /// The length of a list.
    fn count(mut wr: *const bindings::ib_recv_wr) -> usize {
        let mut count = 0;
        while !wr.is_null() && count < 10 {
            count += 1;
            // SAFETY: All entries of the list exist.
            wr = unsafe { (*wr).next };
        }
        count
    }

    #[test]
    fn each_is_linked_once() -> Result {
        let none = (0..4).map(|_| Ok((ptr::null_mut(), None)));
        // SAFETY: The `ib_cqe`s are not used.
        let receives = unsafe { Receives::new(none, 3) }?;
        let mut posted = 0;
        let mut post = |wr| {
            posted += count(wr);
            Ok(())
        };
        // All are linked until they are posted.
        assert_eq!(receives.again(0, &mut post), Err(EINVAL));
        receives.post_linked(&mut post)?;
        for _ in 0..2 {
            receives.again(0, &mut post)?;
            assert_eq!(receives.again(0, &mut post), Err(EINVAL));
            receives.again(3, &mut post)?;
            assert_eq!(receives.again(0, &mut post), Err(EINVAL));
            assert_eq!(receives.again(4, &mut post), Err(EINVAL));
            receives.again(1, &mut post)?;
        }
        receives.post_linked(&mut post)?;
        assert_eq!(posted, 4 + 3 + 3);
        Ok(())
    }
}
