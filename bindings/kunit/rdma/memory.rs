// SPDX-License-Identifier: GPL-2.0

//! Memory that the peer or the device uses: chunks, pages, regions and their direction.

use super::*;
use crate::{
    page::buffer::PageBuffer,
    rdma::{
        chunk::{
            ChunkSet,
            MappedChunks, //
        },
        message_buffers::MessageBuffers, //
    },
    scatterlist::ScatterTable, //
};

/// Registers the chunks of `set` at one end and writes to chunk 1 from scattered pieces of the
/// other's.
fn write(near: &QueuePair<Peer>, far: &QueuePair<Peer>) -> Result {
    let size = 17 * 4096;
    let set = ChunkSet::new(2, size, -1, None)?;
    let chunks = MappedChunks::new(far.domain(), &set)?;
    let region = chunks.region(0, 2)?;
    let mut chain = SendChain::<1>::new();
    chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite)?;
    run(far, chain)?;

    let source = ChunkSet::new(2, size, -1, None)?;
    let pieces = [(0, 100, 5000), (1, 60_000, 9000), (0, 50_000, 1)];
    let mapped = MappedChunks::new(near.domain(), &source)?;
    let mut sges = SgeList::<8>::new();
    let mut expected = KVec::new();
    for (i, (index, offset, len)) in pieces.into_iter().enumerate() {
        let bytes = KVec::from_elem(i as u8 + 1, len, GFP_KERNEL)?;
        source.copy_in(index, offset, &bytes)?;
        mapped.sync_for_device(index, offset, len)?;
        assert_eq!(mapped.add_sges(index, offset, len, &mut sges, 8), Ok(len));
        assert_eq!(chunks.add_sges(index, 0, 1, &mut sges, 8), Err(EINVAL));
        expected.extend_from_slice(&bytes, GFP_KERNEL)?;
    }
    let remote = RemoteMemory {
        address: region.iova() + size as u64 + 3,
        rkey: region.rkey(),
    };
    let mut chain = SendChain::<1>::new();
    chain.rdma_write_with_imm(REQUEST, true, &sges, remote, 0xfeed_beef)?;
    run(near, chain)?;
    wait(far, |peer| &peer.received)?;
    assert_eq!(far.handler().imm.load(ordering::Relaxed), 0xfeed_beef);
    assert_eq!(
        far.handler().length.load(ordering::Relaxed) as usize,
        expected.len()
    );

    chunks.sync_for_cpu(1, 3, expected.len())?;
    let mut found = KVec::from_elem(9u8, expected.len() + 4, GFP_KERNEL)?;
    set.copy_out(1, 0, &mut found)?;
    assert!(found[3..expected.len() + 3] == expected[..]);
    assert!(found[..3] == [0; 3] && found[expected.len() + 3] == 0);

    // With the key gone, so is the access.
    let mut chain = SendChain::<1>::new();
    chain.local_invalidate(REQUEST, true, region.rkey())?;
    run(far, chain)?;
    sges.truncate(1);
    let mut chain = SendChain::<1>::new();
    chain.rdma_write(REQUEST, true, &sges, remote)?;
    assert_eq!(far.post(chain), Err(EINVAL));
    let mut chain = SendChain::<1>::new();
    chain.rdma_write(REQUEST, true, &sges, remote)?;
    run(near, chain)?;
    assert_eq!(near.handler().failed.load(ordering::Relaxed), 1);
    Ok(())
}

#[kunit_tests(rnbd_rdma_memory)]
mod cases {
    use super::*;

    #[test]
    fn write_from_pieces() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            write(&near, &far)?;
        }
        Ok(())
    }

    #[test]
    fn read_into_a_page_and_invalidate() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            let mut table = ScatterTable::new(2)?;
            table.set_buffer(PageBuffer::new()?, 4096)?;
            let region = MemoryRegion::new(near.domain(), 2)?;
            assert_eq!(region.map(&table), Err(EINVAL));
            table.map(near.domain(), Direction::FromDevice)?;
            assert_eq!(table.map(near.domain(), Direction::FromDevice), Err(EBUSY));
            // What the device may use stays.
            table.clear();
            assert!(table.take_buffer().is_none());
            assert_eq!(table.set_buffer(PageBuffer::new()?, 1), Err(EBUSY));
            assert!(table.is_mapped());
            region.map(&table)?;
            assert_eq!(region.map(&table), Err(EBUSY));
            let receives = MessageBuffers::allocate(near.domain(), 2, 100)?;
            for (i, buffer) in receives.iter().enumerate() {
                near.post_recv(WrId(i as u32), buffer)?;
                assert_eq!(far.post_recv(WrId(i as u32), buffer), Err(EINVAL));
            }
            let mut chain = SendChain::<1>::new();
            chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite)?;
            run(&near, chain)?;

            let messages = MessageBuffers::allocate(far.domain(), 2, 100)?;
            messages[1].copy_in(0, &[0x55; 100])?;
            assert_eq!(messages[1].copy_in(8, &[0; 93]), Err(EINVAL));
            assert_eq!(messages[1].copy_in(usize::MAX, &[0; 2]), Err(EINVAL));
            assert_eq!(messages[1].sge(101).map(|_| ()), Err(EINVAL));
            let data = SgeList::from(messages[1].sge(100)?);
            let text = SgeList::from(messages[1].sge(10)?);
            let remote = RemoteMemory {
                address: region.iova() + 4000 - 4,
                rkey: region.rkey(),
            };
            let mut chain = SendChain::<3>::new();
            chain.rdma_write(REQUEST, false, &data, remote)?;
            chain.send_with_invalidate(REQUEST, false, region.rkey())?;
            chain.send_with_imm(REQUEST, true, &text, 5)?;
            run(&far, chain)?;
            wait(&near, |peer| &peer.received)?;
            wait(&near, |peer| &peer.received)?;

            let peer = near.handler();
            assert_eq!(peer.imm.load(ordering::Relaxed), 5);
            assert_eq!(peer.length.load(ordering::Relaxed), 10);
            assert_eq!(peer.last.load(ordering::Relaxed), 1);
            let mut bytes = [0; 10];
            receives[1].copy_out(&mut bytes)?;
            assert_eq!(bytes, [0x55; 10]);
            assert_eq!(table.unmap(far.domain()), Err(EINVAL));
            table.unmap(near.domain())?;
            assert!(!table.is_mapped());
            let page = table.take_buffer().ok_or(EINVAL)?;
            let mut bytes = [0; 100];
            page.read(3996, &mut bytes)?;
            assert_eq!(bytes, [0x55; 100]);
            region.release();
            // The device may still know the page, which is not the region's any more.
            let mut chain = SendChain::<1>::new();
            let again = chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite);
            assert_eq!(again, Err(EINVAL));
            assert!(region.is_empty() && region.sge().is_err());
        }
        Ok(())
    }

    #[test]
    fn regions_stay_with_their_domain() -> Result {
        let (near, far) = pair(PollContext::Softirq)?;
        let chunks = MappedChunks::new(near.domain(), &ChunkSet::new(1, 4096, -1, None)?)?;
        let region = chunks.region(0, 1)?;
        let other = MappedChunks::new(far.domain(), &ChunkSet::new(1, 4096, -1, None)?)?;
        let other = other.region(0, 1)?;
        let mut chain = SendChain::<2>::new();
        chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite)?;
        let wrong = chain.reg_mr(REQUEST, true, &other, Access::RemoteWrite);
        assert_eq!(wrong, Err(EINVAL));
        assert_eq!(far.post(chain), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn memory_is_used_one_way() -> Result {
        let (near, _far) = pair(PollContext::Softirq)?;
        let domain = near.domain();
        let chunks = MappedChunks::new(domain, &ChunkSet::new(1, 4096, -1, None)?)?;
        let region = MemoryRegion::new(domain, 2)?;
        for (permitted, other) in [
            (Direction::ToDevice, Direction::FromDevice),
            (Direction::FromDevice, Direction::ToDevice),
        ] {
            let is_sent = permitted == Direction::ToDevice;
            let mut table = ScatterTable::new(2)?;
            table.set_buffer(PageBuffer::new()?, 4096)?;
            table.permit(permitted);
            assert_eq!(table.copy_to_chunk(&chunks, 0).is_ok(), is_sent);
            assert_eq!(table.copy_from_chunk(&chunks, 0).is_ok(), !is_sent);
            assert_eq!(table.map(domain, other), Err(EINVAL));
            assert_eq!(table.map(domain, Direction::Bidirectional), Err(EINVAL));
            table.map(domain, permitted)?;
            let mut sges = SgeList::<2>::new();
            assert_eq!(table.add_sges(domain, &mut sges, 2), is_sent);
            region.map(&table)?;
            assert_eq!(region.len(), 4096);
            assert_eq!(region.sge().is_ok(), is_sent);
            let mut chain = SendChain::<3>::new();
            let mut give = |access| chain.reg_mr(REQUEST, false, &region, access);
            assert_eq!(give(Access::RemoteWrite).is_ok(), !is_sent);
            assert_eq!(give(Access::RemoteRead).is_ok(), is_sent);
            assert_eq!(give(Access::Local), Ok(()));
            region.release();
            table.unmap(domain)?;
        }
        Ok(())
    }
}
