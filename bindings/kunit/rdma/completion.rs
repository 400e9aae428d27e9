// SPDX-License-Identifier: GPL-2.0

//! Completion queues: their size, handlers that post or drop their own queue pair, and draining.

use super::*;

#[kunit_tests(rnbd_rdma_completion)]
mod cases {
    use super::*;

    #[test]
    fn a_handler_that_waits_for_itself_does_not_wait() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            let peer = near.handler().clone();
            near.post_empty_recvs(RECEIVE, 1)?;
            assert!(peer.own.put(KBox::new(near, GFP_KERNEL)?).is_none());
            post(&far, |batch| batch.imm_only(REQUEST, true, 1))?;
            if context == PollContext::Direct {
                let queue = peer.queue.as_ref().ok_or(EINVAL)?;
                while !peer.received.is_done() {
                    queue.process_direct(16);
                    fsleep(Delta::from_micros(100));
                }
            } else {
                peer.received
                    .wait_timeout(PATIENCE)
                    .map_err(|_| ETIMEDOUT)?;
            }
            drop(peer.own.take());
        }
        Ok(())
    }

    #[test]
    fn everything_in_flight_completes() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            near.post_empty_recvs(RECEIVE, 10)?;
            let peer = near.handler().clone();
            drop(near);
            assert_eq!(peer.flushed.load(ordering::Relaxed), 10);
            drop(far);
        }
        Ok(())
    }

    #[test]
    fn handlers_that_post_while_draining() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            for end in [&near, &far] {
                end.handler().noisy.store(true, ordering::Relaxed);
            }
            near.post_empty_recvs(RECEIVE, 16)?;
            for _ in 0..8 {
                post(&near, |batch| batch.imm_only(REQUEST, true, 1))?;
            }
            wait(&far, |peer| &peer.received)?;
            wait(&near, |peer| &peer.received)?;
            drop(near);
            drop(far);
        }
        Ok(())
    }

    #[test]
    fn full_queues_are_drained() -> Result {
        for context in CONTEXTS {
            let (near, _far) = pair(context)?;
            near.disconnect();
            let mut posted = 0;
            // Ends when the driver has no room, or when the completion queue may have none, as it
            // is not polled.
            while near.post_empty_recvs(RECEIVE, 1).is_ok() {
                posted += 1;
                let flushed = near.handler().flushed.load(ordering::Relaxed);
                if flushed > 1000 || posted - flushed >= COMPLETIONS {
                    break;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn completion_queues_do_not_overflow() -> Result {
        let peer = Peer::new()?;
        let mut id = Id::new(peer.clone(), Namespace::init(), PortSpace::Tcp, OWNER)?;
        assert!(id.device().is_none());
        id.resolve_address(None, &address(PORT)?, PATIENCE)?;
        peer.progress()?;
        let device = id.device().ok_or(ENODEV)?;
        let domain = ProtectionDomain::new(device, OWNER)?;
        let small = CompletionQueue::new(device, OWNER, COMPLETIONS - 1, 0, PollContext::Softirq)?;
        let Err((id, error)) = id.create_queue_pair(&domain, &small, &CAPABILITIES, WORK_IDS)
        else {
            return Err(EINVAL);
        };
        assert_eq!(error, EINVAL);
        let device = id.device().ok_or(ENODEV)?;
        let large = CompletionQueue::new(device, OWNER, COMPLETIONS, 0, PollContext::Softirq)?;
        assert!(id
            .create_queue_pair(&domain, &large, &CAPABILITIES, WORK_IDS)
            .is_ok());
        Ok(())
    }
}
