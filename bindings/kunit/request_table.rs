// SPDX-License-Identifier: GPL-2.0

use super::*;

#[kunit_tests(rnbd_request_table)]
mod cases {
    use super::*;
    use crate::block::mq::request::{
        init_private,
        Private, //
    };
    use core::mem::MaybeUninit;
    use kernel::alloc::flags::__GFP_ZERO;

    const TAG: u32 = 2;

    /// A request as the block layer makes it, with the structures that the table reads. The request
    /// is never ended.
    #[repr(C)]
    struct Memory {
        _request: MaybeUninit<bindings::request>,
        _private: MaybeUninit<Private>,
        queue: MaybeUninit<bindings::request_queue>,
        set: MaybeUninit<u64>,
    }

    struct Fake(KBox<MaybeUninit<Memory>>);

    impl Fake {
        /// A request of a tag set of its own.
        fn new(tag: u32) -> Result<Self> {
            let mut memory = KBox::<Memory>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
            let memory_ptr = memory.as_mut_ptr();
            // SAFETY: All pointers are into the memory, which is zeroed and only used here. The
            // private area follows the request.
            unsafe {
                let queue = (&raw mut (*memory_ptr).queue).cast::<bindings::request_queue>();
                (*queue).tag_set = (&raw mut (*memory_ptr).set).cast();
                let request = memory_ptr.cast::<bindings::request>();
                (*request).q = queue;
                (*request).tag = tag as c_int;
                init_private(request);
            }
            Ok(Self(memory))
        }

        fn raw(&self) -> *mut bindings::request {
            self.0.as_ptr().cast_mut().cast()
        }

        /// The only handle. The tests consume it by [`address`], so it is not dropped.
        fn owned(&self) -> OwnedRequest<()> {
            // SAFETY: The tests have one handle of each request, and do not end the request.
            unsafe { OwnedRequest::from_raw(self.raw()) }
        }

        fn expired(&self) -> ExpiredRequest<'_, (), ()> {
            // SAFETY: The memory stays. Only its address is used.
            unsafe { ExpiredRequest::from_raw(self.raw()) }
        }
    }

    /// Consumes a handle and returns the address of its request; null if there is none.
    fn address(request: Option<OwnedRequest<()>>) -> *mut bindings::request {
        request.map_or(ptr::null_mut(), OwnedRequest::into_raw)
    }

    /// Puts the request of `fake` into the table. `EINVAL` if the table refuses it.
    fn insert(table: &RequestTable<()>, fake: &Fake) -> Result {
        let refused = address(table.insert(fake.owned()).err());
        refused.is_null().then_some(()).ok_or(EINVAL)
    }

    #[test]
    fn a_request_is_taken_once() -> Result {
        let table = RequestTable::<()>::new(4)?;
        let fake = Fake::new(TAG)?;
        insert(&table, &fake)?;
        assert!(address(table.take(TAG + 1)).is_null());
        assert!(address(table.take(4)).is_null());
        assert_eq!(address(table.take(TAG)), fake.raw());
        assert!(address(table.take(TAG)).is_null());
        assert!(address(table.take_expired(TAG, &fake.expired())).is_null());
        Ok(())
    }

    #[test]
    fn an_event_after_the_timeout_finds_the_request() -> Result {
        let table = RequestTable::<()>::new(4)?;
        let fake = Fake::new(TAG)?;
        insert(&table, &fake)?;
        assert_eq!(
            address(table.take_expired(TAG, &fake.expired())),
            fake.raw()
        );
        assert!(address(table.put_back(fake.owned()).err()).is_null());
        assert_eq!(address(table.take(TAG)), fake.raw());
        assert!(address(table.take(TAG)).is_null());
        Ok(())
    }

    #[test]
    fn an_event_during_the_timeout_leaves_the_request_to_it() -> Result {
        let table = RequestTable::<()>::new(4)?;
        let fake = Fake::new(TAG)?;
        insert(&table, &fake)?;
        assert_eq!(
            address(table.take_expired(TAG, &fake.expired())),
            fake.raw()
        );
        assert!(address(table.take(TAG)).is_null());
        assert_eq!(address(table.put_back(fake.owned()).err()), fake.raw());
        // A late event finds neither the request nor the mark.
        assert!(address(table.take(TAG)).is_null());
        Ok(())
    }

    #[test]
    fn the_next_request_of_a_tag_is_another_one() -> Result {
        let table = RequestTable::<()>::new(4)?;
        let fake = Fake::new(TAG)?;
        insert(&table, &fake)?;
        assert_eq!(
            address(table.take_expired(TAG, &fake.expired())),
            fake.raw()
        );
        // The first request was abandoned, so its mark is still in the slot.
        insert(&table, &fake)?;
        assert_eq!(address(table.take(TAG)), fake.raw());
        // The second request left no mark.
        assert_eq!(address(table.put_back(fake.owned()).err()), fake.raw());
        Ok(())
    }

    #[test]
    fn a_request_of_another_set_is_refused() -> Result {
        let table = RequestTable::<()>::new(4)?;
        let (fake, other) = (Fake::new(TAG)?, Fake::new(TAG)?);
        insert(&table, &fake)?;
        assert_eq!(address(table.insert(other.owned()).err()), other.raw());
        assert!(address(table.take_expired(TAG, &other.expired())).is_null());
        assert_eq!(
            address(table.take_expired(TAG, &fake.expired())),
            fake.raw()
        );
        assert_eq!(address(table.put_back(other.owned()).err()), other.raw());
        // The table is dropped with the mark in its slot, and ends no request.
        Ok(())
    }
}
