// SPDX-License-Identifier: GPL-2.0

use super::*;

#[kunit_tests(rnbd_rdma_batch)]
mod cases {
    use super::*;

    fn cqes() -> [bindings::ib_cqe; 4] {
        core::array::from_fn(|_| bindings::ib_cqe { done: None })
    }

    fn sge(addr: u64, length: u32, lkey: u32, domain: u64) -> Sge {
        // SAFETY: The entry is not posted.
        unsafe { Sge::new(addr, length, lkey, domain) }
    }

    fn remote() -> RemoteMemory {
        RemoteMemory {
            address: 0x1234,
            rkey: 0x99,
        }
    }

    /// A queue pair of the domain `domain` that takes `max_send_sge` entries.
    fn target(cqes: &[bindings::ib_cqe], domain: u64, max_send_sge: u32) -> Target<'_> {
        Target {
            cqes,
            domain,
            queue_pair: 1,
            max_send_sge,
        }
    }

    #[test]
    fn no_more_than_its_length() -> Result {
        let mut room = SendRoom::<2, 1>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        assert!(batch.is_empty() && batch.has_room(2, 1) && !batch.has_room(3, 0));
        batch.imm_only(WrId(0), false, 1)?;
        batch.invalidate_key(WrId(0), false, 5)?;
        assert_eq!(batch.imm_only(WrId(0), false, 1), Err(ENOSPC));
        assert_eq!(batch.send(WrId(0), false), Err(ENOSPC));
        assert_eq!(batch.len(), 2);
        batch.clear();
        assert!(batch.is_empty() && batch.has_room(2, 1));
        Ok(())
    }

    #[test]
    fn entries_of_one_domain() -> Result {
        let cqes = cqes();
        let mut room = SendRoom::<1, 2>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        batch.add(sge(1, 1, 1, 7))?;
        assert_eq!(batch.add(sge(1, 1, 1, 8)), Err(EINVAL));
        batch.add(sge(2, 1, 1, 7))?;
        assert_eq!(batch.add(sge(3, 1, 1, 7)), Err(ENOSPC));
        // SAFETY: Without room, or for another domain, the closure is not called, and no entry
        // counts as written.
        let adds = |batch: &mut SendBatch<'_, 1, 2>, domain| unsafe {
            batch.add_from(1, domain, |_| panic!("no room"))
        };
        assert!(!adds(&mut batch, 7));
        assert_eq!(batch.pending(), 2);
        batch.reset();
        batch.add(sge(1, 1, 1, 8))?;
        assert!(!adds(&mut batch, 7));
        assert_eq!(batch.pending(), 1);
        batch.send(WrId(0), true)?;
        assert!(matches!(batch.link(&target(&cqes, 7, 2)), Err(error) if error == EINVAL));
        assert!(batch.link(&target(&cqes, 8, 2)).is_ok());
        Ok(())
    }

    #[test]
    fn requests_of_one_domain() -> Result {
        let cqes = cqes();
        let near = || sge(1, 1, 1, 7);
        let far = || sge(1, 1, 1, 8);
        let mut room = SendRoom::<4, 4>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        batch.imm_only(WrId(0), true, 1)?;
        batch.add(near())?;
        batch.send(WrId(0), true)?;
        assert_eq!(batch.add(far()), Err(EINVAL));
        // The domain also counts if there are requests, but no entries of the next one.
        batch.reset();
        assert_eq!(batch.add(far()), Err(EINVAL));
        batch.add(near())?;
        batch.rdma_write(WrId(0), true, remote())?;
        assert_eq!(batch.len(), 3);
        assert!(matches!(batch.link(&target(&cqes, 8, 2)), Err(error) if error == EINVAL));
        assert!(batch.link(&target(&cqes, 7, 2)).is_ok());
        // An empty batch takes memory of any domain.
        batch.clear();
        batch.add(far())?;
        batch.send(WrId(0), true)?;
        assert!(batch.link(&target(&cqes, 8, 2)).is_ok());
        Ok(())
    }

    #[test]
    fn only_known_names() -> Result {
        let cqes = cqes();
        let mut room = SendRoom::<2, 0>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        assert!(batch.link(&target(&cqes, 7, 2)).is_err());
        for (id, is_known) in [(3, true), (4, false), (u32::MAX, false)] {
            batch.clear();
            batch.imm_only(WrId(0), false, 1)?;
            batch.imm_only(WrId(id), false, 1)?;
            assert_eq!(batch.link(&target(&cqes, 7, 2)).is_ok(), is_known);
        }
        Ok(())
    }

    #[test]
    fn no_more_entries_than_the_queue_pair_takes() -> Result {
        let cqes = cqes();
        for (limit, fits) in [(2, false), (3, true)] {
            let mut room = SendRoom::<2, 3>::EMPTY;
            let mut batch = SendBatch::new(&mut room);
            batch.imm_only(WrId(0), false, 1)?;
            for addr in 1..4 {
                batch.add(sge(addr, 1, 1, 7))?;
            }
            batch.rdma_write(WrId(0), true, remote())?;
            assert_eq!(batch.link(&target(&cqes, 7, limit)).is_ok(), fits);
        }
        Ok(())
    }

    #[test]
    fn requests_in_order() -> Result {
        let cqes = cqes();
        let mut room = SendRoom::<4, 3>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        batch.add(sge(0x1000, 10, 7, 1))?;
        batch.add(sge(0x2000, 20, 7, 1))?;
        batch.rdma_write(WrId(3), false, remote())?;
        batch.send_with_invalidate(WrId(1), false, 0x77)?;
        batch.send_with_imm(WrId(2), true, 0x0102_0304)?;
        batch.add(sge(0x3000, 30, 7, 1))?;
        batch.write_with_imm(WrId(0), false, remote(), 0x0506_0708)?;
        let first = batch.link(&target(&cqes, 1, 2))?;

        // SAFETY: The batch is linked, and each request has the type of its opcode.
        unsafe {
            let write = first.cast::<bindings::ib_rdma_wr>();
            assert_eq!((*first).opcode, bindings::ib_wr_opcode_IB_WR_RDMA_WRITE);
            assert_eq!((*write).remote_addr, 0x1234);
            assert_eq!((*write).rkey, 0x99);
            assert_eq!((*first).num_sge, 2);
            assert_eq!((*(*first).sg_list.add(1)).addr, 0x2000);
            assert_eq!((*first).send_flags, 0);
            let cqe: *mut bindings::ib_cqe = *(*first).__bindgen_anon_1.wr_cqe;
            assert!(ptr::eq(cqe, &cqes[3]));
            assert_eq!(batch.position(first), Some(0));

            let second = (*first).next;
            assert_eq!((*second).opcode, bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV);
            assert_eq!(*(*second).ex.invalidate_rkey, 0x77);

            let third = (*second).next;
            assert_eq!((*third).opcode, bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM);
            assert_eq!((*third).num_sge, 0);
            assert_eq!(u32::from_be(*(*third).ex.imm_data), 0x0102_0304);
            assert_eq!(
                (*third).send_flags,
                bindings::ib_send_flags_IB_SEND_SIGNALED as c_int
            );

            // The entries of the fourth request follow those of the first.
            let fourth = (*third).next;
            assert_eq!((*fourth).num_sge, 1);
            assert_eq!((*(*fourth).sg_list).addr, 0x3000);
            assert_eq!(u32::from_be(*(*fourth).ex.imm_data), 0x0506_0708);
            assert!((*fourth).next.is_null());
            assert_eq!(batch.position(fourth), Some(3));
            assert_eq!(batch.position((*fourth).next), None);
        }
        Ok(())
    }
}
