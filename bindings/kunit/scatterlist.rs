// SPDX-License-Identifier: GPL-2.0

use super::*;

#[kunit_tests(rnbd_scatterlist)]
mod cases {
    use super::*;

    #[test]
    fn a_buffer_comes_back() -> Result {
        let mut table = ScatterTable::new(0)?;
        assert_eq!(table.capacity(), 1);
        let mut buffer = PageBuffer::new()?;
        buffer.write(10, b"text")?;
        table.set_buffer(buffer, 20)?;
        assert_eq!(table.used, 1);
        assert_eq!(table.byte_len(), 20);
        let buffer = table.take_buffer().ok_or(EINVAL)?;
        assert_eq!(table.used, 0);
        assert!(table.take_buffer().is_none());
        let mut text = [1; 6];
        buffer.read(9, &mut text)?;
        assert_eq!(&text, b"\0text\0");
        Ok(())
    }

    #[test]
    fn no_more_than_the_buffer() -> Result {
        let mut table = ScatterTable::new(2)?;
        let too_much = PAGE_SIZE as u32 + 1;
        assert_eq!(table.set_buffer(PageBuffer::new()?, too_much), Err(EINVAL));
        assert_eq!(table.set_buffer(PageBuffer::new()?, 0), Err(EINVAL));
        assert_eq!(table.used, 0);
        let mut buffer = PageBuffer::new()?;
        assert_eq!(buffer.capacity(), PAGE_SIZE);
        assert!(buffer.write(PAGE_SIZE - 1, b"ab").is_err());
        assert!(buffer.write(usize::MAX, b"ab").is_err());
        assert!(buffer.read(PAGE_SIZE, &mut [0]).is_err());
        Ok(())
    }

    #[test]
    fn a_buffer_of_several_pages() -> Result {
        assert_eq!(PageBuffer::with_len(0)?.capacity(), PAGE_SIZE);
        assert_eq!(PageBuffer::with_len(PAGE_SIZE)?.capacity(), PAGE_SIZE);
        let mut buffer = PageBuffer::with_len(2 * PAGE_SIZE + 1)?;
        assert_eq!(buffer.capacity(), 3 * PAGE_SIZE);
        // The writes cross the edge between two pages, and reach the end of the last page.
        buffer.write(PAGE_SIZE - 2, b"abcd")?;
        buffer.write(3 * PAGE_SIZE - 1, b"z")?;
        let mut text = [1; 6];
        buffer.read(PAGE_SIZE - 3, &mut text)?;
        assert_eq!(&text, b"\0abcd\0");
        buffer.read(3 * PAGE_SIZE - 1, &mut text[..1])?;
        assert_eq!(text[0], b'z');
        assert_eq!(buffer.write(3 * PAGE_SIZE - 1, b"ab"), Err(EINVAL));
        assert_eq!(buffer.read(2 * PAGE_SIZE, &mut [0]), Ok(()));
        assert_eq!(buffer.read(3 * PAGE_SIZE, &mut []), Ok(()));
        assert_eq!(buffer.read(3 * PAGE_SIZE, &mut [0]), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn a_table_of_several_pages() -> Result {
        let mut table = ScatterTable::new(3)?;
        let len = 2 * PAGE_SIZE as u32 + 5;
        table.set_buffer(PageBuffer::with_len(4 * PAGE_SIZE)?, len)?;
        assert_eq!(table.used, 3);
        assert_eq!(table.byte_len(), len as usize);
        let lengths = [0, 1, 2].map(|index| table.entries[index].length);
        assert_eq!(lengths, [PAGE_SIZE as u32, PAGE_SIZE as u32, 5]);
        // Next come fewer pages than before, and more pages than the table has room for.
        table.set_buffer(PageBuffer::with_len(2 * PAGE_SIZE)?, 7)?;
        assert_eq!((table.used, table.byte_len()), (1, 7));
        let more = 3 * PAGE_SIZE + 1;
        let buffer = PageBuffer::with_len(more)?;
        assert_eq!(table.set_buffer(buffer, more as u32), Err(EINVAL));
        assert_eq!(table.byte_len(), 7);
        Ok(())
    }

    #[test]
    fn a_table_is_cleared() -> Result {
        let mut table = ScatterTable::new(2)?;
        table.set_buffer(PageBuffer::new()?, 1)?;
        table.clear();
        assert_eq!(table.used, 0);
        assert_eq!(table.byte_len(), 0);
        assert!(table.take_buffer().is_none());
        Ok(())
    }

    /// A list of `count` entries, each with the first `len` bytes of `page`.
    fn list(page: &PageBuffer, count: usize, len: u32) -> Result<KVec<bindings::scatterlist>> {
        let mut list = KVec::from_elem(bindings::scatterlist::default(), count, GFP_KERNEL)?;
        // SAFETY: There are `count` entries, and the page outlives the list.
        unsafe {
            bindings::sg_init_table(list.as_mut_ptr(), count as u32);
            for index in 0..count {
                let entry = list.as_mut_ptr().add(index);
                bindings::rnbd_helper_sg_set_page(entry, page.first_page(), len, 0);
            }
        }
        Ok(list)
    }

    /// Lends the first `count` entries of `list` to `table`.
    fn lend(table: &mut ScatterTable, list: &mut [bindings::scatterlist], count: u32) -> Result {
        // SAFETY: `list` is a valid list. The tests neither map the table nor copy from or to it.
        unsafe { table.set_lent(list.as_mut_ptr(), count, Direction::ToDevice) }
    }

    #[test]
    fn lent_entries_are_copied() -> Result {
        let page = PageBuffer::new()?;
        let mut table = ScatterTable::new(3)?;
        // The end mark moves with the number of entries.
        for count in [3, 1, 2] {
            let mut list = list(&page, count, 512)?;
            lend(&mut table, &mut list, count as u32)?;
            assert_eq!(table.used as usize, count);
            assert_eq!(table.byte_len(), 512 * count);
            for (index, entry) in table.entries.iter().enumerate().take(count) {
                let is_last = entry.page_link & u64::from(bindings::SG_END) as c_ulong != 0;
                assert_eq!(is_last, index + 1 == count);
            }
        }
        assert!(table.pages(Direction::ToDevice).is_some());
        assert!(table.pages(Direction::FromDevice).is_none());
        table.clear();
        assert_eq!(table.byte_len(), 0);
        Ok(())
    }

    #[test]
    fn shared_memory_goes_back_with_the_last_hold() -> Result {
        let shared = SharedTable::new(2, 1)?;
        let fill = |len| shared.fill(|table| table.set_buffer(PageBuffer::new()?, len));
        // A failed call leaves no memory in the table.
        assert_eq!(fill(0).err(), Some(EINVAL));
        assert_eq!(shared.fill(|_| Ok(())).err(), Some(EINVAL));
        let to_write = shared.fill(|table| {
            table.set_buffer(PageBuffer::new()?, 1)?;
            table.permit(Direction::FromDevice);
            Ok(())
        });
        assert_eq!(to_write.err(), Some(EINVAL));
        let sharing = fill(100)?;
        assert_eq!(sharing.byte_len(), 100);
        let (mut one, mut other) = (ScatterTable::new(1)?, ScatterTable::new(1)?);
        one.set_shared(&sharing)?;
        other.set_shared(&sharing)?;
        assert_eq!((one.used, one.byte_len()), (1, 100));
        assert!(one.pages(Direction::FromDevice).is_none());
        drop(sharing);
        assert_eq!(fill(1).err(), Some(EBUSY));
        one.release_request();
        assert_eq!((one.used, one.byte_len()), (0, 0));
        assert_eq!(fill(1).err(), Some(EBUSY));
        // The other table gets memory of its own.
        other.set_buffer(PageBuffer::new()?, 7)?;
        let sharing = fill(PAGE_SIZE as u32)?;
        drop(sharing);
        drop(fill(1)?);
        assert_eq!(shared.times_mapped(), 0);
        Ok(())
    }

    #[test]
    fn shared_memory_needs_as_much_room() -> Result {
        let shared = SharedTable::new(2, 0)?;
        let len = PAGE_SIZE as u32 + 1;
        let sharing =
            shared.fill(|table| table.set_buffer(PageBuffer::with_len(len as usize)?, len))?;
        let mut table = ScatterTable::new(1)?;
        assert_eq!(table.set_shared(&sharing), Err(EINVAL));
        assert_eq!((table.used, table.byte_len()), (0, 0));
        let mut table = ScatterTable::new(2)?;
        table.set_shared(&sharing)?;
        assert_eq!(table.byte_len(), len as usize);
        assert!(table.take_buffer().is_none());
        drop(sharing);
        // The table has dropped its hold.
        let refilled = shared.fill(|table| table.set_buffer(PageBuffer::new()?, 1));
        refilled.map(drop)
    }

    #[test]
    fn a_page_to_send_from_stays_described() -> Result {
        let pages = SendPages::new(2)?;
        let mut table = ScatterTable::new(1)?;
        assert_eq!(table.set_page(&pages, 2, 1), Err(EINVAL));
        assert_eq!(table.set_page(&pages, 0, 0), Err(EINVAL));
        assert_eq!(table.set_page(&pages, 0, PAGE_SIZE as u32 + 1), Err(EINVAL));
        assert_eq!((table.used, table.byte_len()), (0, 0));
        for (index, len) in [(0, 7), (0, PAGE_SIZE as u32), (1, 1)] {
            table.set_page(&pages, index, len)?;
            // The end of a request does not empty the table.
            table.release_request();
            assert_eq!((table.used, table.byte_len()), (1, len as usize));
            assert_eq!(table.len_in_page(&pages, index), Some(len));
            assert_eq!(table.len_in_page(&pages, 1 - index), None);
            assert!(table.pages(Direction::ToDevice).is_some());
            assert!(table.pages(Direction::FromDevice).is_none());
        }
        assert_eq!(table.len_in_page(&SendPages::new(2)?, 1), None);
        table.set_buffer(PageBuffer::new()?, 1)?;
        assert_eq!(table.len_in_page(&pages, 1), None);
        table.set_page(&pages, 1, 1)?;
        assert!(table.take_buffer().is_none());
        assert_eq!(table.len_in_page(&pages, 1), None);
        table.set_page(&pages, 1, 1)?;
        table.clear();
        assert_eq!(table.len_in_page(&pages, 1), None);
        Ok(())
    }

    #[test]
    fn no_more_than_a_page_to_send_from() -> Result {
        let pages = SendPages::new(1)?;
        let bytes = KVVec::from_elem(7u8, SendPages::SIZE + 1, GFP_KERNEL)?;
        assert_eq!(pages.copy_in(0, &bytes), Err(EINVAL));
        assert_eq!(pages.copy_in(1, &bytes[1..]), Err(EINVAL));
        pages.copy_in(0, &bytes[1..])
    }

    #[test]
    fn a_bad_list_is_not_taken() -> Result {
        let page = PageBuffer::new()?;
        let mut table = ScatterTable::new(2)?;
        let mut good = list(&page, 2, 512)?;
        assert_eq!(lend(&mut table, &mut good, 0), Err(EINVAL));
        let mut long = list(&page, 3, 512)?;
        assert_eq!(lend(&mut table, &mut long, 3), Err(EINVAL));
        let mut short = list(&page, 1, 512)?;
        assert_eq!(lend(&mut table, &mut short, 2), Err(EINVAL));
        let mut empty = list(&page, 2, 0)?;
        assert_eq!(lend(&mut table, &mut empty, 2), Err(EINVAL));
        assert_eq!(table.byte_len(), 0);
        lend(&mut table, &mut good, 2)
    }
}
