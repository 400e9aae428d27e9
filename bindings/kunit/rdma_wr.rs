// SPDX-License-Identifier: GPL-2.0

use super::*;

#[kunit_tests(rnbd_rdma_wr)]
mod cases {
    use super::*;

    fn cqes() -> [bindings::ib_cqe; 4] {
        core::array::from_fn(|_| bindings::ib_cqe { done: None })
    }

    fn sge(addr: u64, length: u32, lkey: u32, domain: u64) -> Sge {
        // SAFETY: It is not posted.
        unsafe { Sge::new(addr, length, lkey, domain) }
    }

    fn remote() -> RemoteMemory {
        RemoteMemory {
            address: 0x1234,
            rkey: 0x99,
        }
    }

    #[test]
    fn no_more_than_its_length() -> Result {
        let mut chain = SendChain::<2>::new();
        assert!(chain.is_empty());
        chain.imm_only(WrId(0), false, 1)?;
        chain.local_invalidate(WrId(0), false, 5)?;
        assert_eq!(chain.imm_only(WrId(0), false, 1), Err(ENOSPC));
        assert_eq!(chain.len(), 2);
        Ok(())
    }

    #[test]
    fn entries_of_one_domain() -> Result {
        let mut list = SgeList::<2>::new();
        assert!(list.is_of(7));
        list.push(sge(1, 1, 1, 7))?;
        assert_eq!(list.push(sge(1, 1, 1, 8)), Err(EINVAL));
        assert!(list.is_of(7) && !list.is_of(8));
        list.push(sge(2, 1, 1, 7))?;
        assert_eq!(list.push(sge(3, 1, 1, 7)), Err(ENOSPC));
        assert_eq!(list.len(), 2);
        list.clear();
        list.push(sge(1, 1, 1, 8))?;
        assert!(list.is_of(8) && !list.is_of(7));
        Ok(())
    }

    #[test]
    fn requests_of_one_domain() -> Result {
        let cqes = cqes();
        let near = SgeList::from(sge(1, 1, 1, 7));
        let far = SgeList::from(sge(1, 1, 1, 8));
        let mut chain = SendChain::<4>::new();
        chain.imm_only(WrId(0), true, 1)?;
        chain.send(WrId(0), true, &near)?;
        assert_eq!(chain.send(WrId(0), true, &far), Err(EINVAL));
        assert_eq!(chain.rdma_write(WrId(0), true, &far, remote()), Err(EINVAL));
        chain.rdma_write(WrId(0), true, &near, remote())?;
        assert_eq!(chain.len(), 3);
        assert!(matches!(chain.link(&cqes, 8, 2), Err(error) if error == EINVAL));
        assert!(chain.link(&cqes, 7, 2).is_ok());
        // It is empty again.
        chain.send(WrId(0), true, &far)?;
        assert!(chain.link(&cqes, 8, 2).is_ok());
        Ok(())
    }

    #[test]
    fn only_known_names() -> Result {
        let cqes = cqes();
        assert!(SendChain::<1>::new().link_to(&cqes, 2).is_err());
        let mut chain = SendChain::<2>::new();
        chain.imm_only(WrId(0), false, 1)?;
        chain.imm_only(WrId(4), false, 1)?;
        assert!(chain.link_to(&cqes, 2).is_err());
        Ok(())
    }

    #[test]
    fn no_more_entries_than_the_queue_pair_takes() -> Result {
        let cqes = cqes();
        let mut list = SgeList::<3>::new();
        for addr in 1..4 {
            list.push(sge(addr, 1, 1, 7))?;
        }
        for (limit, fits) in [(2, false), (3, true)] {
            let mut chain = SendChain::<2>::new();
            chain.imm_only(WrId(0), false, 1)?;
            chain.rdma_write(WrId(0), true, &list, remote())?;
            assert_eq!(chain.link(&cqes, 7, limit).is_ok(), fits);
        }
        Ok(())
    }

    #[test]
    fn requests_in_order() -> Result {
        let cqes = cqes();
        let mut list = SgeList::<2>::new();
        list.push(sge(0x1000, 10, 7, 1))?;
        list.push(sge(0x2000, 20, 7, 1))?;
        let none = SgeList::<0>::new();
        let mut chain = SendChain::<3>::new();
        chain.rdma_write(WrId(3), false, &list, remote())?;
        chain.send_with_invalidate(WrId(1), false, 0x77)?;
        chain.send_with_imm(WrId(2), true, &none, 0x0102_0304)?;
        let first = chain.link_to(&cqes, 2)?;

        // SAFETY: The chain is linked, and each request is of the type that its opcode says.
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

            let second = (*first).next;
            assert_eq!((*second).opcode, bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV);
            assert_eq!(*(*second).ex.invalidate_rkey, 0x77);

            let third = (*second).next;
            assert_eq!((*third).opcode, bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM);
            assert_eq!(u32::from_be(*(*third).ex.imm_data), 0x0102_0304);
            assert_eq!(
                (*third).send_flags,
                bindings::ib_send_flags_IB_SEND_SIGNALED as c_int
            );
            assert!((*third).next.is_null());
        }
        Ok(())
    }
}
