// SPDX-License-Identifier: GPL-2.0

//! The handshake, its refusals and the end of a connection.

use super::*;

#[kunit_tests(rnbd_rdma_connection)]
mod cases {
    use super::*;

    #[test]
    fn refused_with_a_reason() -> Result {
        for (reaction, answer) in [(Reaction::Refuse, b'R'), (Reaction::Ignore, 0)] {
            let (_listener, _id) = Listener::new(reaction)?;
            let result = connect(PORT, PollContext::Softirq).map(|_| ());
            assert!(result == Err((ECONNREFUSED, u32::from(answer))));
        }
        Ok(())
    }

    #[test]
    fn nobody_listens() {
        let result = connect(PORT, PollContext::Softirq).map(|_| ());
        assert!(result == Err((ECONNREFUSED, 0)));
    }

    #[test]
    fn dropped_in_its_own_event_handler() -> Result {
        let (_listener, _id) = Listener::new(Reaction::DropInside)?;
        let result = connect(PORT, PollContext::Softirq).map(|_| ());
        assert!(result == Err((ECONNREFUSED, 0)));
        Ok(())
    }

    #[test]
    fn a_listener_may_ask_for_its_address_in_its_own_handler() -> Result {
        let (listener, id) = Listener::new(Reaction::AskItself)?;
        assert!(listener.own.put(KBox::new(id, GFP_KERNEL)?).is_none());
        let result = connect(PORT, PollContext::Softirq).map(|_| ());
        assert!(result == Err((ECONNREFUSED, 0)));
        assert!(listener.asked.load(ordering::Relaxed));
        drop(listener.own.take());
        Ok(())
    }

    #[test]
    fn the_other_end_notices() -> Result {
        let (near, far) = pair(PollContext::Softirq)?;
        drop(far);
        near.handler()
            .disconnected
            .wait_timeout(PATIENCE)
            .map_err(|_| ETIMEDOUT)
    }
}
