// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_noted_slot)]
mod tests {
    use super::*;
    use crate::sync::noted_slot::NotedSlot;
    use kernel::sync::Arc;

    /// A slot, and the value in its box. By the value's references the test sees whether the box
    /// was dropped.
    fn slot() -> Result<(NotedSlot<Arc<u32>>, Arc<u32>)> {
        let value = Arc::new(7, GFP_KERNEL)?;
        let slot = NotedSlot::new(KBox::new(value.clone(), GFP_KERNEL)?);
        Ok((slot, value))
    }

    #[test]
    fn a_box_is_taken_once() -> Result {
        let (slot, _) = slot()?;
        assert!(slot.take_aside().is_none());
        let value = slot.take().ok_or(EINVAL)?;
        assert!(slot.take().is_none());
        assert!(slot.put(value).is_ok());
        assert!(slot.take().is_some());
        Ok(())
    }

    #[test]
    fn a_box_that_was_put_aside_is_found_there_only() -> Result {
        let (slot, _) = slot()?;
        let value = slot.take().ok_or(EINVAL)?;
        assert!(slot.put_aside(value).is_ok());
        assert!(slot.take().is_none());
        assert!(!slot.note(1));
        let value = slot.take_aside().ok_or(EINVAL)?;
        assert_eq!(**value, 7);
        assert!(slot.take_aside().is_none());
        Ok(())
    }

    #[test]
    fn one_number_is_kept_while_the_box_is_away() -> Result {
        let (slot, _) = slot()?;
        assert!(!slot.note(5));
        let value = slot.take().ok_or(EINVAL)?;
        assert!(!slot.note(u64::MAX));
        assert!(slot.note(u64::MAX >> 1));
        assert!(!slot.note(6));
        let Err((value, noted)) = slot.put(value) else {
            return Err(EINVAL);
        };
        assert_eq!(noted, u64::MAX >> 1);
        assert!(slot.note(0));
        let Err((value, noted)) = slot.put_aside(value) else {
            return Err(EINVAL);
        };
        assert_eq!(noted, 0);
        assert!(slot.put_aside(value).is_ok());
        Ok(())
    }

    #[test]
    fn what_is_left_is_dropped_with_the_slot() -> Result {
        let (slot, value) = slot()?;
        let aside = NotedSlot::new(KBox::new(value.clone(), GFP_KERNEL)?);
        let away = aside.take().ok_or(EINVAL)?;
        assert!(aside.put_aside(away).is_ok());
        drop((slot, aside));
        // This succeeds only if there is no other reference.
        assert!(Arc::into_unique_or_drop(value).is_some());
        Ok(())
    }
}
