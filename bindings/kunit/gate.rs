// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_gate)]
mod tests {
    use super::*;
    use crate::{
        preempt,
        sync::{
            completion::Completion,
            gate::Gate, //
        },
        time::Deadline,
        workqueue::{
            OwnedQueue,
            QueueFlags, //
        }, //
    };
    use kernel::sync::{
        rcu,
        Arc, //
    };

    #[test]
    fn where_sleeping_is_allowed_is_known() {
        assert!(preempt::may_sleep());
        let guard = rcu::read_lock();
        assert!(!preempt::may_sleep());
        drop(guard);
        assert!(preempt::may_sleep());
    }

    #[test]
    fn the_first_to_close_gets_the_value() -> Result {
        let gate = Gate::new(5)?;
        assert_eq!(gate.enter().map(|entered| *entered), Some(5));
        assert_eq!(gate.close(), Some(5));
        assert!(gate.enter().is_none());
        assert_eq!(gate.close(), None);
        Ok(())
    }

    #[test]
    fn closing_waits_for_those_inside() -> Result {
        let gate = Arc::new(Gate::new(5)?, GFP_KERNEL)?;
        let closed = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let entered = gate.enter().ok_or(EINVAL)?;
        let queue = OwnedQueue::new(c"rnbd_kunit", QueueFlags::UNBOUND)?;
        let (theirs, signal) = (gate.clone(), closed.clone());
        queue.handle().spawn(move || {
            let _ = theirs.close();
            signal.complete();
        })?;
        while gate.enter().is_some() {
            kernel::task::might_sleep();
        }
        let again = entered.clone();
        drop(entered);
        assert!(closed.wait_timeout(10).is_err());
        assert_eq!(*again, 5);
        drop(again);
        closed.wait();
        Ok(())
    }

    #[test]
    fn it_is_drained_and_open_again() -> Result {
        let gate = Gate::new(5)?;
        assert!(gate.finish_drain(0));
        for _ in 0..3 {
            let entered = gate.enter().ok_or(EINVAL)?;
            gate.begin_drain();
            gate.begin_drain();
            assert!(gate.enter().is_none());
            assert!(!gate.finish_drain(10));
            assert_eq!(*entered, 5);
            drop(entered);
            assert!(gate.wait_open());
            assert!(gate.finish_drain(0));
            assert_eq!(gate.enter().map(|entered| *entered), Some(5));
        }
        gate.begin_drain();
        assert_eq!(gate.close(), Some(5));
        assert!(gate.finish_drain(10));
        assert!(!gate.wait_open());
        Ok(())
    }

    #[test]
    fn a_task_that_waits_for_a_drain_holds_up_no_other() -> Result {
        let gate = Arc::new(Gate::new(5)?, GFP_KERNEL)?;
        let drained = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let entered = gate.enter().ok_or(EINVAL)?;
        gate.begin_drain();
        let queue = OwnedQueue::new(c"rnbd_kunit", QueueFlags::UNBOUND)?;
        for _ in 0..2 {
            let (theirs, signal) = (gate.clone(), drained.clone());
            queue.handle().spawn(move || {
                assert!(theirs.finish_drain(60_000));
                signal.complete();
            })?;
        }
        assert!(drained.wait_timeout(50).is_err());
        let deadline = Deadline::after(10_000);
        for _ in 0..20 {
            assert!(!gate.finish_drain(0));
            gate.begin_drain();
        }
        assert_ne!(deadline.left(), 0);
        drop(entered);
        drained.wait();
        drained.wait();
        assert!(gate.finish_drain(0));
        assert!(gate.enter().is_some());
        Ok(())
    }

    #[test]
    fn one_that_is_drained_can_be_closed() -> Result {
        let gate = Arc::new(Gate::new(5)?, GFP_KERNEL)?;
        let closed = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let entered = gate.enter().ok_or(EINVAL)?;
        gate.begin_drain();
        let queue = OwnedQueue::new(c"rnbd_kunit", QueueFlags::UNBOUND)?;
        let (theirs, signal) = (gate.clone(), closed.clone());
        queue.handle().spawn(move || {
            assert_eq!(theirs.close(), Some(5));
            signal.complete();
        })?;
        assert!(closed.wait_timeout(10).is_err());
        assert!(!gate.finish_drain(10));
        drop(entered);
        closed.wait();
        assert!(gate.finish_drain(10));
        Ok(())
    }

    #[test]
    fn it_is_not_closed_where_sleeping_is_not_allowed() -> Result {
        let gate = Gate::new(5)?;
        let guard = rcu::read_lock();
        assert_eq!(gate.close(), None);
        drop(guard);
        assert!(gate.enter().is_some());
        assert_eq!(gate.close(), Some(5));
        Ok(())
    }
}
