// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_wait)]
mod tests {
    use super::*;
    use crate::sync::completion::{
        Completion,
        KillableMutex, //
        Timeout,
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
        event.wait();
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
        let mutex = Arc::pin_init(KillableMutex::new(), GFP_KERNEL)?;
        let taken = mutex.lock_killable()?;
        assert_eq!(mutex.lock_interruptible_timeout(1).err(), Some(ETIMEDOUT));
        drop(taken);
        let taken = mutex.lock_interruptible_timeout(1)?;
        assert!(mutex.lock_interruptible_timeout(1).is_err());
        assert!(mutex.lock_timeout(1).is_err());
        assert!(mutex.lock_timeout(0).is_err());
        drop(taken);
        drop(mutex.lock_timeout(0)?);
        assert!(mutex.lock_killable().is_ok());
        Ok(())
    }
}
