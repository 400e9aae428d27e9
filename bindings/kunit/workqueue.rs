// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_workqueue)]
mod tests {
    use super::*;
    use crate::{
        sync::completion::Completion,
        workqueue::{
            self,
            DelayedWork,
            DelayedWorkItem,
            OwnedQueue,
            QueueFlags,
            QueueHandle, //
        }, //
    };
    use kernel::{
        impl_has_work,
        new_work,
        sync::{
            atomic::{
                ordering,
                Atomic, //
            },
            rcu,
            Arc, //
        },
        time::{
            msecs_to_jiffies,
            Jiffies, //
        },
        workqueue::{
            Work,
            WorkItem, //
        }, //
    };

    /// Longer than any test takes.
    const LONG_MS: u32 = 100_000;

    #[pin_data]
    struct Item {
        #[pin]
        work: Work<Self>,
        #[pin]
        delayed: DelayedWork<Self>,
        #[pin]
        started: Completion,
        #[pin]
        proceed: Completion,
        runs: Atomic<i32>,
        repeats: bool,
    }

    impl_has_work! {
        impl HasWork<Self> for Item { self.work }
    }

    crate::impl_has_delayed_work! {
        impl HasDelayedWork<Self> for Item { self.delayed }
    }

    impl WorkItem for Item {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            this.started.complete();
            this.proceed.wait();
            this.runs.add(1, ordering::Relaxed);
        }
    }

    impl DelayedWorkItem for Item {
        fn run(this: Arc<Self>) {
            this.runs.add(1, ordering::Relaxed);
            this.started.complete();
            if this.repeats {
                let _ = DelayedWork::queue(this, 1);
            }
        }
    }

    impl Item {
        fn new(queue: &QueueHandle, repeats: bool) -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Self {
                    work <- new_work!("kunit::work"),
                    delayed <- crate::new_delayed_work!(queue, "kunit::delayed"),
                    started <- Completion::new(),
                    proceed <- Completion::new(),
                    runs: Atomic::new(0),
                    repeats,
                }),
                GFP_KERNEL,
            )
        }

        fn runs(&self) -> i32 {
            self.runs.load(ordering::Relaxed)
        }
    }

    fn queue() -> Result<OwnedQueue> {
        OwnedQueue::new(c"rnbd_kunit", QueueFlags::UNBOUND)
    }

    fn long() -> Jiffies {
        msecs_to_jiffies(LONG_MS)
    }

    fn is_last(item: Arc<Item>) -> bool {
        Arc::into_unique_or_drop(item).is_some()
    }

    #[test]
    fn work_runs_and_gives_its_reference_back() -> Result {
        let queue = queue()?;
        let item = Item::new(&queue.handle(), false)?;
        item.proceed.complete_all();
        assert!(queue.handle().enqueue(item.clone()).is_ok());
        workqueue::flush(&item);
        assert_eq!(item.runs(), 1);
        drop(queue);
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn a_queue_dropped_where_sleeping_is_not_allowed_goes_with_its_last_handle() -> Result {
        let queue = queue()?;
        let handle = queue.handle();
        let item = Item::new(&handle, false)?;
        let guard = rcu::read_lock();
        drop(queue);
        drop(guard);
        // The handle still works, so the queue still exists.
        assert!(handle.enqueue(item.clone()).is_ok());
        item.started.wait();
        item.proceed.complete_all();
        handle.flush();
        assert_eq!(item.runs(), 1);
        drop(handle);
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn queued_work_is_not_queued_twice_and_can_be_cancelled() -> Result {
        let queue = OwnedQueue::new(c"rnbd_kunit", QueueFlags::ORDERED)?;
        let first = Item::new(&queue.handle(), false)?;
        let second = Item::new(&queue.handle(), false)?;
        assert!(queue.handle().enqueue(first.clone()).is_ok());
        first.started.wait();
        // The ordered queue is busy with the first item.
        assert!(queue.handle().enqueue(second.clone()).is_ok());
        assert!(queue.handle().enqueue(second.clone()).is_err());
        assert!(workqueue::cancel_sync(&second));
        assert!(!workqueue::cancel_sync(&second));
        first.proceed.complete_all();
        queue.handle().flush();
        assert_eq!(first.runs(), 1);
        assert_eq!(second.runs(), 0);
        assert!(is_last(second));
        Ok(())
    }

    #[test]
    fn delayed_work_waits_and_can_be_cancelled() -> Result {
        let queue = queue()?;
        let item = Item::new(&queue.handle(), false)?;
        assert!(DelayedWork::queue(item.clone(), long()).is_ok());
        assert!(DelayedWork::queue(item.clone(), 0).is_err());
        assert!(DelayedWork::cancel_sync(&item));
        assert!(!DelayedWork::cancel_sync(&item));
        assert!(DelayedWork::queue(item.clone(), long()).is_ok());
        assert!(DelayedWork::cancel(&item));
        assert_eq!(item.runs(), 0);
        drop(queue);
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn delayed_work_can_be_hurried() -> Result {
        let queue = queue()?;
        let item = Item::new(&queue.handle(), false)?;
        assert!(DelayedWork::queue(item.clone(), long()).is_ok());
        assert!(DelayedWork::modify(item.clone(), 0).is_ok());
        item.started.wait();
        assert!(DelayedWork::queue(item.clone(), long()).is_ok());
        assert!(DelayedWork::modify(item.clone(), 0).is_ok());
        queue.handle().flush();
        assert_eq!(item.runs(), 2);
        Ok(())
    }

    #[test]
    fn work_that_repeats_itself_is_stopped() -> Result {
        let queue = queue()?;
        let item = Item::new(&queue.handle(), true)?;
        assert!(DelayedWork::queue(item.clone(), 0).is_ok());
        item.started.wait();
        item.started.wait();
        DelayedWork::cancel_sync(&item);
        let runs = item.runs();
        queue.handle().flush();
        assert!(!DelayedWork::cancel_sync(&item));
        assert_eq!(item.runs(), runs);
        drop(queue);
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn a_queue_waits_for_its_timers_and_then_refuses() -> Result {
        let queue = queue()?;
        let handle = queue.handle();
        let item = Item::new(&handle, false)?;
        assert!(DelayedWork::queue(item.clone(), msecs_to_jiffies(20)).is_ok());
        drop(queue);
        assert_eq!(item.runs(), 1);
        assert!(DelayedWork::queue(item.clone(), 0).is_err());
        assert!(handle.enqueue(item.clone()).is_err());
        assert_eq!(handle.spawn(|| ()), Err(ESHUTDOWN));
        handle.flush();
        assert!(is_last(item));
        Ok(())
    }

    #[test]
    fn closures_run() -> Result {
        let queue = queue()?;
        let event = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let signal = event.clone();
        queue.handle().spawn(move || signal.complete())?;
        event.wait();
        Ok(())
    }
}
