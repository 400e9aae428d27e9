// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::prelude::*;

#[kunit_tests(rnbd_state_cell)]
mod cases {
    use super::*;

    #[test]
    fn one_owner() -> Result {
        let cell = StateCell::new(5, 1);
        assert!(cell.take(2).is_none());
        let mut value = cell.take(1).ok_or(EINVAL)?;
        *value += 1;
        assert!(cell.take(1).is_none());
        assert!(!cell.change(1, 2));
        value.put(3);
        assert_eq!(cell.state(), 3);
        assert!(cell.change(3, 4));
        assert_eq!(*cell.take(4).ok_or(EINVAL)?, 6);
        // The owner above was dropped.
        assert_eq!(cell.state(), 0);
        Ok(())
    }

    #[test]
    fn an_owner_is_told() -> Result {
        let cell = StateCell::new(5, 1);
        assert!(!cell.note());
        let value = cell.take_notable(1).ok_or(EINVAL)?;
        let owned = cell.state();
        assert!(cell.take(owned).is_none());
        assert!(cell.take_notable(owned).is_none());
        assert!(value.put_unless_noted(2).is_ok());
        let value = cell.take_notable(2).ok_or(EINVAL)?;
        assert!(cell.note());
        assert!(!cell.note());
        let value = value.put_unless_noted(3).err().ok_or(EINVAL)?;
        assert!(cell.take(3).is_none());
        value.put(4);
        let value = cell.take(4).ok_or(EINVAL)?;
        assert!(!cell.note());
        value.put(5);
        assert_eq!(cell.state(), 5);
        Ok(())
    }

    #[test]
    fn an_owner_is_not_robbed() -> Result {
        let cell = StateCell::new(5, 0);
        let value = cell.take(0).ok_or(EINVAL)?;
        let owned = cell.state();
        assert!(cell.take(owned).is_none());
        assert!(!cell.change(owned, 0));
        value.put(1);
        assert!(!cell.change(1, owned));
        assert!(cell.take(1).is_some());
        Ok(())
    }
}
