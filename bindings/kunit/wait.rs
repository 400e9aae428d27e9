// SPDX-License-Identifier: GPL-2.0

use kernel::prelude::*;

#[kunit_tests(rnbd_wait)]
mod tests {
    use super::*;
    use crate::sync::completion::{
        Completion,
        Timeout,
        Turn, //
    };
    use kernel::sync::Arc;

    fn completion() -> Result<Arc<Completion>> {
        Arc::pin_init(Completion::new(), GFP_KERNEL)
    }

    #[test]
    fn times_out() -> Result {
        let event = completion()?;
        assert!(!event.is_done());
        assert_eq!(event.wait_timeout(1), Err(Timeout));
        assert_eq!(event.wait_interruptible_timeout(1), Err(ETIMEDOUT));
        Ok(())
    }

    #[test]
    fn complete_lets_one_through() -> Result {
        let event = completion()?;
        event.complete();
        assert!(event.is_done());
        event.wait();
        assert_eq!(event.wait_timeout(1), Err(Timeout));
        event.complete();
        event.complete();
        assert_eq!(event.wait_interruptible(), Ok(()));
        assert_eq!(event.wait_killable(), Ok(()));
        assert!(!event.is_done());
        assert!(!event.try_wait());
        event.complete();
        assert!(event.try_wait());
        assert!(!event.try_wait());
        Ok(())
    }

    #[test]
    fn complete_all_lets_all_through() -> Result {
        let event = completion()?;
        event.complete_all();
        event.wait();
        event.wait();
        assert_eq!(event.wait_interruptible_timeout(1), Ok(()));
        assert!(event.try_wait());
        assert!(event.is_done());
        Ok(())
    }

    #[test]
    fn one_at_a_time() -> Result {
        let turn = Arc::pin_init(Turn::new(), GFP_KERNEL)?;
        let taken = turn.take_killable()?;
        assert_eq!(turn.take_interruptible_timeout(1).err(), Some(ETIMEDOUT));
        drop(taken);
        let taken = turn.take_interruptible_timeout(1)?;
        assert!(turn.take_interruptible_timeout(1).is_err());
        drop(taken);
        assert!(turn.take_killable().is_ok());
        Ok(())
    }
}
