// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::c_caller::HandleTable;
use kernel::sync::rcu;

#[kunit_tests(rnbd_c_caller)]
mod cases {
    use super::*;

    #[test]
    fn a_handle_finds_its_own_thing_only() -> Result {
        let handles = Handles::new(2)?;
        let first = handles.insert(Arc::new(1u32, GFP_KERNEL)?)?;
        let second = handles.insert(Arc::new(2u32, GFP_KERNEL)?)?;
        let found = |handle| handles.get(handle, &rcu::read_lock()).map(|found| *found);
        assert_eq!(found(first), Some(1));
        assert_eq!(found(second), Some(2));
        assert!(matches!(
            handles.insert(Arc::new(3u32, GFP_KERNEL)?),
            Err(error) if error == ENFILE
        ));
        assert_eq!(handles.remove(first).map(|thing| *thing), Some(1));
        assert!(handles.remove(first).is_none());
        assert_eq!(found(first), None);
        // The place is used again, under another handle.
        let third = handles.insert(Arc::new(4u32, GFP_KERNEL)?)?;
        assert_eq!(Handles::<u32>::place(third), Handles::<u32>::place(first));
        assert_eq!(found(first), None);
        assert_eq!(found(third), Some(4));
        Ok(())
    }

    #[test]
    fn a_table_has_things_while_there_is_room() -> Result {
        static THINGS: HandleTable<u32> = HandleTable::new();
        let thing = Arc::new(1u32, GFP_KERNEL)?;
        assert!(matches!(THINGS.insert(thing.clone()), Err(error) if error == ENODEV));
        THINGS.begin(1)?;
        let handle = THINGS.insert(thing.clone())?;
        assert_eq!(THINGS.find(handle).map(|found| *found), Some(1));
        assert_eq!(THINGS.with(handle, |found| Ok(*found)), Ok(1));
        assert_eq!(THINGS.remove(handle).map(|found| *found), Some(1));
        assert_eq!(THINGS.with(handle, |found| Ok(*found)), Err(ENODEV));
        let handle = THINGS.insert(thing)?;
        THINGS.end();
        assert!(THINGS.find(handle).is_none() && THINGS.remove(handle).is_none());
        Ok(())
    }

    #[test]
    fn what_is_no_handle_finds_nothing() -> Result {
        let handles = Handles::new(2)?;
        let handle = handles.insert(Arc::new(1u32, GFP_KERNEL)?)?;
        let guard = rcu::read_lock();
        for other in [0, 1, handle.number() + 1, handle.number() + 8, u64::MAX] {
            assert!(handles.get(Handle::new(other), &guard).is_none());
        }
        drop(guard);
        for other in [0, 1, handle.number() + 1, u64::MAX] {
            assert!(handles.remove(Handle::new(other)).is_none());
        }
        assert!(handle.to_c().addr() < error_pointer(EINVAL).addr());
        Ok(())
    }
}
