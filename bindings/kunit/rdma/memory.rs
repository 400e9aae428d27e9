// SPDX-License-Identifier: GPL-2.0

//! Memory that the peer or the device accesses: chunks, pages, regions and their direction.

use super::*;
use crate::{
    page::{
        buffer::PageBuffer,
        send::SendPages, //
    },
    rdma::{
        chunk::{
            single::MappedChunk,
            ChunkSet,
            MappedChunks, //
        },
        message_buffers::{
            MessageBuffer,
            MessageBuffers,
            Outgoing, //
        },
        send_pages::MappedSendPages, //
    },
    scatterlist::{
        ScatterTable,
        SharedTable, //
    }, //
};

/// Registers chunks at the far end, and writes to chunk 1 from scattered pieces of the near end's
/// chunks.
fn write(near: &QueuePair<Peer>, far: &QueuePair<Peer>) -> Result {
    let size = 17 * 4096;
    let set = ChunkSet::new(2, size, -1, None)?;
    let chunks = MappedChunks::new(far.domain(), &set)?;
    let region = chunks.region(0, 2)?;
    run(far, |batch| {
        batch.register(REQUEST, true, &region, Access::RemoteWrite)
    })?;

    let source = ChunkSet::new(2, size, -1, None)?;
    let pieces = [(0, 100, 5000), (1, 60_000, 9000), (0, 50_000, 1)];
    let mapped = MappedChunks::new(near.domain(), &source)?;
    let mut room = SendRoom::<1, 8>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    let mut expected = KVec::new();
    for (i, (index, offset, len)) in pieces.into_iter().enumerate() {
        let bytes = KVec::from_elem(i as u8 + 1, len, GFP_KERNEL)?;
        source.copy_in(index, offset, &bytes)?;
        mapped.sync_for_device(index, offset, len)?;
        assert_eq!(mapped.add_sges(index, offset, len, &mut batch, 8), Ok(len));
        assert_eq!(chunks.add_sges(index, 0, 1, &mut batch, 8), Err(EINVAL));
        expected.extend_from_slice(&bytes, GFP_KERNEL)?;
    }
    let remote = RemoteMemory {
        address: region.iova() + size as u64 + 3,
        rkey: region.rkey(),
    };
    batch.write_with_imm(REQUEST, true, remote, 0xfeed_beef)?;
    near.post(&mut batch)?;
    wait(near, |peer| &peer.finished)?;
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

    // Without the key there is no access.
    run(far, |batch| {
        batch.invalidate_key(REQUEST, true, region.rkey())
    })?;
    let (index, offset, len) = pieces[0];
    let write = |batch: &mut SendBatch<'_, 3, 8>| {
        mapped.add_sges(index, offset, len, batch, 1)?;
        batch.rdma_write(REQUEST, true, remote)
    };
    assert_eq!(post(far, write), Err(EINVAL));
    run(near, write)?;
    assert_eq!(near.handler().failed.load(ordering::Relaxed), 1);
    Ok(())
}

/// Runs `f` with an empty batch.
fn with_batch<R>(f: impl FnOnce(&mut SendBatch<'_, 2, 2>) -> Result<R>) -> Result<R> {
    let mut room = SendRoom::EMPTY;
    f(&mut SendBatch::new(&mut room))
}

/// A page that `region` has mapped.
fn page_table(region: &MemoryRegion, direction: Direction) -> Result<ScatterTable> {
    let mut table = ScatterTable::new(2)?;
    table.set_buffer(PageBuffer::new()?, 4096)?;
    assert_eq!(region.load(&table), Err(EINVAL));
    region.map(&mut table, direction)?;
    assert_eq!(region.map(&mut table, direction), Err(EBUSY));
    // The table keeps the memory that the device may use.
    table.clear();
    assert!(table.take_buffer().is_none());
    assert_eq!(table.set_buffer(PageBuffer::new()?, 1), Err(EBUSY));
    assert!(table.is_mapped());
    Ok(table)
}

/// Registers `table`, which `region` has mapped, and checks that it stays mapped meanwhile.
fn expose(
    near: &QueuePair<Peer>,
    region: &MemoryRegion,
    table: &mut ScatterTable,
    access: Access,
) -> Result {
    region.load(table)?;
    assert_eq!(region.load(table), Err(EBUSY));
    with_batch(|batch| {
        batch.register(REQUEST, true, region, access)?;
        let again = batch.register(REQUEST, true, region, access);
        assert_eq!(again, Err(ENOSPC));
        // The region is not registered yet.
        assert_eq!(with_batch(|other| other.invalidate(region)), Err(EBUSY));
        assert_eq!(region.unmap(table), Err(EBUSY));
        Ok(near.post(batch)?)
    })?;
    wait(near, |peer| &peer.finished)?;
    assert_eq!(region.unmap(table), Err(EBUSY));
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
    fn the_peer_reads_into_a_page_and_invalidates() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            let region = MemoryRegion::new(near.domain(), 2, 1)?;
            let mut table = page_table(&region, Direction::FromDevice)?;
            let receives = MessageBuffers::allocate(near.domain(), 2, 100)?;
            for (i, buffer) in receives.iter().enumerate() {
                near.post_recv(WrId(i as u32), buffer)?;
                assert_eq!(far.post_recv(WrId(i as u32), buffer), Err(EINVAL));
            }
            expose(&near, &region, &mut table, Access::RemoteWrite)?;

            let messages = MessageBuffers::allocate(far.domain(), 2, 100)?;
            messages[1].copy_in(0, &[0x55; 100])?;
            assert_eq!(messages[1].copy_in(8, &[0; 93]), Err(EINVAL));
            assert_eq!(messages[1].copy_in(usize::MAX, &[0; 2]), Err(EINVAL));
            assert_eq!(messages[1].sge(101).map(|_| ()), Err(EINVAL));
            let remote = RemoteMemory {
                address: region.iova() + 4000 - 4,
                rkey: region.rkey(),
            };
            run(&far, |batch| {
                batch.add(messages[1].sge(100)?)?;
                batch.rdma_write(REQUEST, false, remote)?;
                batch.send_with_invalidate(REQUEST, false, region.rkey())?;
                batch.add(messages[1].sge(10)?)?;
                batch.send_with_imm(REQUEST, true, 5)
            })?;
            wait(&near, |peer| &peer.received)?;
            wait(&near, |peer| &peer.received)?;

            let peer = near.handler();
            assert_eq!(peer.imm.load(ordering::Relaxed), 5);
            assert_eq!(peer.length.load(ordering::Relaxed), 10);
            assert_eq!(peer.last.load(ordering::Relaxed), 1);
            let mut bytes = [0; 10];
            receives[1].copy_out(&mut bytes)?;
            assert_eq!(bytes, [0x55; 10]);

            // Only the queue pair of the registration has the report, and the report counts once.
            assert_eq!(region.unmap(&mut table), Err(EBUSY));
            assert!(!far.peer_ended(&region));
            assert!(near.peer_ended(&region));
            assert!(!near.peer_ended(&region));
            let other = MemoryRegion::new(near.domain(), 2, 2)?;
            assert_eq!(other.unmap(&mut table), Err(EINVAL));
            region.unmap(&mut table)?;
            assert!(!table.is_mapped());
            let page = table.take_buffer().ok_or(EINVAL)?;
            let mut bytes = [0; 100];
            page.read(3996, &mut bytes)?;
            assert_eq!(bytes, [0x55; 100]);
            // Without a table the region must not be registered: the device may still know the
            // page.
            let again =
                with_batch(|batch| batch.register(REQUEST, true, &region, Access::RemoteWrite));
            assert_eq!(again, Err(EBUSY));
            assert!(region.is_empty() && region.sge().is_err());
        }
        Ok(())
    }

    #[test]
    fn an_invalidation_gives_the_page_back() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            let region = MemoryRegion::new(near.domain(), 2, 3)?;
            let mut table = page_table(&region, Direction::FromDevice)?;
            expose(&near, &region, &mut table, Access::RemoteWrite)?;
            with_batch(|batch| {
                batch.invalidate(&region)?;
                Ok(near.post(batch)?)
            })?;
            wait(&near, |peer| &peer.finished)?;
            assert_eq!(near.handler().region.load(ordering::Relaxed), 3);
            region.unmap(&mut table)?;
            assert!(table.take_buffer().is_some());

            // On another queue pair the invalidation could be carried out before the registration.
            let mut table = page_table(&region, Direction::FromDevice)?;
            expose(&near, &region, &mut table, Access::RemoteWrite)?;
            with_batch(|batch| {
                batch.invalidate(&region)?;
                assert_eq!(batch.invalidate(&region), Err(ENOSPC));
                assert!(far.post(batch).is_err());
                Ok(())
            })?;
            // Nothing was posted, so the key may still be valid.
            assert_eq!(region.unmap(&mut table), Err(EBUSY));
            near.drain()?;
            region.unmap(&mut table)?;
        }
        Ok(())
    }

    #[test]
    fn a_page_is_sent_until_it_is_written() -> Result {
        let (near, far) = pair(PollContext::Direct)?;
        // Room for a page and the 8 bytes behind it.
        let set = ChunkSet::new(1, 8192, -1, None)?;
        let chunks = MappedChunks::new(far.domain(), &set)?;
        let target = chunks.region(0, 1)?;
        run(&far, |batch| {
            batch.register(REQUEST, true, &target, Access::RemoteWrite)
        })?;
        let remote = RemoteMemory {
            address: target.iova(),
            rkey: target.rkey(),
        };
        let region = MemoryRegion::new(near.domain(), 2, 4)?;
        let mut table = page_table(&region, Direction::ToDevice)?;
        with_batch(|batch| {
            let buffer = MessageBuffer::<Outgoing>::new(near.domain(), 8)?;
            let mut write = |table: &_, limit| {
                batch.write_table(table, &region, buffer.sge(8)?, limit, remote, 1)
            };
            assert_eq!(write(&table, 0), Err(EINVAL));
            // There is no room for the last entry.
            assert_eq!(write(&table, 1), Ok(false));
            let other = MemoryRegion::new(near.domain(), 2, 6)?;
            let mut elsewhere = page_table(&other, Direction::ToDevice)?;
            assert_eq!(write(&elsewhere, 2), Ok(false));
            other.unmap(&mut elsewhere)?;
            assert_eq!(write(&table, 2), Ok(true));
            assert_eq!(write(&table, 2), Err(EBUSY));
            assert_eq!(region.unmap(&mut table), Err(EBUSY));
            assert_eq!(region.load(&table), Err(EBUSY));
            Ok(near.post(batch)?)
        })?;
        // The queue was not polled yet, so the handler was not called.
        assert_eq!(region.unmap(&mut table), Err(EBUSY));
        wait(&near, |peer| &peer.finished)?;
        assert_eq!(near.handler().region.load(ordering::Relaxed), 4);
        region.unmap(&mut table)?;
        Ok(())
    }

    #[test]
    fn shared_memory_is_mapped_once_for_a_device() -> Result {
        // Both ends are on the same device, each in a domain of its own.
        let (near, far) = pair(PollContext::Softirq)?;
        for max_devices in [1, 0] {
            let shared = SharedTable::new(2, max_devices)?;
            let regions = [
                MemoryRegion::new(near.domain(), 2, 7)?,
                MemoryRegion::new(far.domain(), 2, 8)?,
            ];
            let mut tables = [ScatterTable::new(2)?, ScatterTable::new(3)?];
            let sharing = shared.fill(|table| table.set_buffer(PageBuffer::new()?, 4096))?;
            for (region, table) in regions.iter().zip(&mut tables) {
                table.set_shared(&sharing)?;
                assert_eq!(region.map(table, Direction::FromDevice), Err(EINVAL));
                region.map(table, Direction::ToDevice)?;
                region.load(table)?;
                // A mapping that was not used for a while stays for the next request.
                region.unmap(table)?;
                region.map(table, Direction::ToDevice)?;
            }
            // Without a place for the device each table maps the memory itself.
            assert_eq!(shared.times_mapped(), max_devices as u64);
            drop(sharing);
            let refill = || shared.fill(|table| table.set_buffer(PageBuffer::new()?, 1));
            for (region, table) in regions.iter().zip(&mut tables) {
                assert_eq!(refill().err(), Some(EBUSY));
                table.clear();
                assert!(table.is_mapped());
                region.unmap(table)?;
                table.release_request();
            }
            drop(refill()?);
            drop(refill()?);
            assert_eq!(shared.times_mapped(), max_devices as u64);
        }
        Ok(())
    }

    #[test]
    fn only_a_table_of_a_page_is_sent_from_there() -> Result {
        let (near, _far) = pair(PollContext::Softirq)?;
        let pages = SendPages::new(2)?;
        let mapped = MappedSendPages::new(near.domain(), &pages)?;
        let mut table = ScatterTable::new(1)?;
        assert!(mapped.sge(0, &table).is_none());
        table.set_page(&SendPages::new(2)?, 0, 5)?;
        assert!(mapped.sge(0, &table).is_none());
        table.set_buffer(PageBuffer::new()?, 5)?;
        assert!(mapped.sge(0, &table).is_none());
        table.set_page(&pages, 0, 5)?;
        assert!(mapped.sge(1, &table).is_none());
        let (entry, domain) = mapped.sge(0, &table).ok_or(EINVAL)?.into_raw();
        assert_eq!((entry.length, domain), (5, near.domain().serial()));
        // The table can be mapped like any other, too.
        let region = MemoryRegion::new(near.domain(), 1, 9)?;
        assert_eq!(region.map(&mut table, Direction::FromDevice), Err(EINVAL));
        region.map(&mut table, Direction::ToDevice)?;
        assert_eq!(table.set_page(&pages, 0, 6), Err(EBUSY));
        region.unmap(&mut table)?;
        table.set_page(&pages, 0, 6)
    }

    #[test]
    fn a_drained_domain_gives_everything_back() -> Result {
        let (near, far) = pair(PollContext::Softirq)?;
        let region = MemoryRegion::new(near.domain(), 2, 5)?;
        let mut table = page_table(&region, Direction::FromDevice)?;
        expose(&near, &region, &mut table, Access::RemoteWrite)?;
        far.drain()?;
        assert!(!near.domain().is_drained());
        assert_eq!(region.unmap(&mut table), Err(EBUSY));
        near.drain()?;
        assert!(near.domain().is_drained());
        assert!(matches!(pd::Membership::new(near.domain()), Err(error) if error == ESHUTDOWN));
        region.unmap(&mut table)?;
        assert!(table.take_buffer().is_some());
        Ok(())
    }

    #[test]
    fn regions_stay_with_their_domain() -> Result {
        let (near, far) = pair(PollContext::Softirq)?;
        let chunks = MappedChunks::new(near.domain(), &ChunkSet::new(1, 4096, -1, None)?)?;
        let region = chunks.region(0, 1)?;
        let other = MappedChunks::new(far.domain(), &ChunkSet::new(1, 4096, -1, None)?)?;
        let other = other.region(0, 1)?;
        let register = |batch: &mut SendBatch<'_, 3, 8>| {
            batch.register(REQUEST, true, &region, Access::RemoteWrite)?;
            let wrong = batch.register(REQUEST, true, &other, Access::RemoteWrite);
            assert_eq!(wrong, Err(EINVAL));
            Ok(())
        };
        assert_eq!(post(&far, register), Err(EINVAL));
        run(&near, register)
    }

    #[test]
    fn permanent_regions_are_registered_together() -> Result {
        let (near, far) = pair(PollContext::Softirq)?;
        let set = ChunkSet::new(3, 4096, -1, None)?;
        let chunks = MappedChunks::new(far.domain(), &set)?;
        let targets = [chunks.region(0, 1)?, chunks.region(1, 1)?];
        let data = MessageBuffer::<Outgoing>::new(near.domain(), 8)?;
        data.copy_in(0, &[0x55; 8])?;
        // A region with a table is registered in the same batch, and each region can be used.
        let region = MemoryRegion::new(far.domain(), 2, 7)?;
        let mut table = page_table(&region, Direction::FromDevice)?;
        region.load(&table)?;
        run(&far, |batch| {
            batch.register(REQUEST, false, &targets[0], Access::RemoteWrite)?;
            batch.register(REQUEST, false, &region, Access::RemoteWrite)?;
            batch.register(REQUEST, true, &targets[1], Access::RemoteWrite)
        })?;
        for region in [&targets[0], &targets[1], &region] {
            run(&near, |batch| {
                batch.add(data.sge(8)?)?;
                let (address, rkey) = (region.iova(), region.rkey());
                batch.rdma_write(REQUEST, true, RemoteMemory { address, rkey })
            })?;
        }
        assert_eq!(near.handler().failed.load(ordering::Relaxed), 0);
        // A permanent region cannot be invalidated by `invalidate()`. The region with the table is
        // in use until its invalidation has completed.
        let wrong = post(&far, |batch| batch.invalidate(&targets[0]));
        assert_eq!(wrong, Err(EBUSY));
        assert_eq!(region.unmap(&mut table), Err(EBUSY));
        run(&far, |batch| batch.invalidate(&region))?;
        region.unmap(&mut table)
    }

    #[test]
    fn memory_is_used_one_way() -> Result {
        let (near, _far) = pair(PollContext::Softirq)?;
        let domain = near.domain();
        let chunks = MappedChunks::new(domain, &ChunkSet::new(1, 4096, -1, None)?)?;
        let chunk = MappedChunk::new(&Arc::new(chunks, GFP_KERNEL)?, 0)?;
        let mut tables = KVec::new();
        for (permitted, other) in [
            (Direction::ToDevice, Direction::FromDevice),
            (Direction::FromDevice, Direction::ToDevice),
        ] {
            let is_sent = permitted == Direction::ToDevice;
            let region = MemoryRegion::new(domain, 2, 0)?;
            let mut table = ScatterTable::new(2)?;
            table.set_buffer(PageBuffer::new()?, 4096)?;
            table.permit(permitted);
            assert_eq!(chunk.copy_from_table(&table).is_ok(), is_sent);
            assert_eq!(chunk.copy_to_table(&mut table).is_ok(), !is_sent);
            assert_eq!(region.map(&mut table, other), Err(EINVAL));
            let both = Direction::Bidirectional;
            assert_eq!(region.map(&mut table, both), Err(EINVAL));
            region.map(&mut table, permitted)?;
            let spare = MemoryRegion::new(domain, 2, 0)?;
            let mut spare_table = ScatterTable::new(2)?;
            spare_table.set_buffer(PageBuffer::new()?, 4096)?;
            spare_table.permit(permitted);
            spare.map(&mut spare_table, permitted)?;
            let adds = with_batch(|batch| {
                let last = MessageBuffer::<Outgoing>::new(domain, 8)?;
                let place = RemoteMemory::NONE;
                let adds = batch.write_table(&spare_table, &spare, last.sge(8)?, 2, place, 1)?;
                // A table in a batch stays mapped. The table of the other direction was not added
                // to a batch.
                assert_eq!(spare.unmap(&mut spare_table).is_ok(), !adds);
                Ok(adds)
            })?;
            assert_eq!(adds, is_sent);
            if adds {
                tables.push((spare, spare_table), GFP_KERNEL)?;
            }
            region.load(&table)?;
            assert_eq!(region.len(), 4096);
            assert_eq!(region.sge().is_ok(), is_sent);
            let (allowed, refused) = if is_sent {
                (Access::RemoteRead, Access::RemoteWrite)
            } else {
                (Access::RemoteWrite, Access::RemoteRead)
            };
            with_batch(|batch| {
                let wrong = batch.register(REQUEST, false, &region, refused);
                assert_eq!(wrong, Err(EINVAL));
                batch.register(REQUEST, false, &region, allowed)
            })?;
            // The batch might have been posted.
            assert_eq!(region.unmap(&mut table), Err(EBUSY));
            tables.push((region, table), GFP_KERNEL)?;
        }
        near.drain()?;
        for (region, mut table) in tables {
            region.unmap(&mut table)?;
        }
        Ok(())
    }
}
