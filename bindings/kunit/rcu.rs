// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_rcu)]
mod tests {
    use super::*;
    use crate::{
        bindings,
        sync::rcu::RcuArc, //
    };
    use kernel::sync::{
        rcu,
        Arc, //
    };

    fn is_last(reference: Arc<u32>) -> bool {
        Arc::into_unique_or_drop(reference).is_some()
    }

    #[test]
    fn nothing_is_there() {
        let empty: RcuArc<u32> = RcuArc::new(None);
        assert!(empty.is_none());
        assert!(empty.load(&rcu::read_lock()).is_none());
        assert!(empty.get().is_none());
        assert!(empty.replace(None).is_none());
    }

    #[test]
    fn readers_see_what_was_put_in() -> Result {
        let shared = RcuArc::new(Some(Arc::new(1, GFP_KERNEL)?));
        assert_eq!(shared.load(&rcu::read_lock()).map(|value| *value), Some(1));
        let old = shared.replace(Some(Arc::new(2, GFP_KERNEL)?));
        assert_eq!(old.map(|value| *value), Some(1));
        assert_eq!(shared.get().map(|value| *value), Some(2));
        Ok(())
    }

    #[test]
    fn references_that_are_detached_together_come_back_later() -> Result {
        let [first, second] = [1, 2].map(|number| Arc::new(number, GFP_KERNEL));
        let shared = [RcuArc::new(Some(first?)), RcuArc::new(Some(second?))];
        let [first, second] = shared.each_ref().map(RcuArc::detach);
        assert!(shared.iter().all(RcuArc::is_none));
        assert!(shared.iter().all(|shared| shared.detach().wait().is_none()));
        assert_eq!(second.wait().map(|value| *value), Some(2));
        assert_eq!(first.wait().map(is_last), Some(true));
        Ok(())
    }

    #[test]
    fn a_detached_reference_is_dropped() -> Result {
        let value = Arc::new(1, GFP_KERNEL)?;
        drop(RcuArc::new(Some(value.clone())).detach());
        assert!(is_last(value));
        Ok(())
    }

    /// Drops the reference to `value` that was left behind. Returns whether that was the only one
    /// besides `value`.
    fn was_left_behind(value: Arc<u32>) -> bool {
        // SAFETY: The reference that was left behind is not used any more, nor is the reference to
        // the module that was taken at the same time.
        drop(unsafe {
            bindings::module_put(&raw mut bindings::__this_module);
            Arc::from_raw(Arc::as_ptr(&value))
        });
        is_last(value)
    }

    #[test]
    fn a_reader_that_replaces_what_it_reads_keeps_it() -> Result {
        let value = Arc::new(1, GFP_KERNEL)?;
        let shared = RcuArc::new(Some(value.clone()));
        let guard = rcu::read_lock();
        let read = shared.load(&guard);
        assert!(shared.replace(None).is_none());
        assert_eq!(read.map(|value| *value), Some(1));
        drop(guard);
        assert!(was_left_behind(value));
        Ok(())
    }

    #[test]
    fn a_reader_that_drops_what_it_reads_from_keeps_it() -> Result {
        let value = Arc::new(1, GFP_KERNEL)?;
        let shared = RcuArc::new(Some(value.clone()));
        let guard = rcu::read_lock();
        let read = shared.load_ref(&guard);
        drop(shared);
        assert_eq!(read, Some(&1));
        drop(guard);
        assert!(was_left_behind(value));
        Ok(())
    }

    #[test]
    fn references_are_given_back() -> Result {
        let value = Arc::new(1, GFP_KERNEL)?;
        let shared = RcuArc::new(Some(value.clone()));
        let taken = shared.get();
        assert_eq!(taken.map(is_last), Some(false));
        drop(shared.replace(None));
        assert!(shared.is_none());
        drop(shared.replace(Some(value.clone())));
        drop(shared);
        assert!(is_last(value));
        Ok(())
    }
}
