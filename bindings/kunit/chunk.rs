// SPDX-License-Identifier: GPL-2.0

use super::{single::Chunk, *};
use crate::block::memory::Memory;
use kernel::page::PAGE_SIZE;

#[kunit_tests(rnbd_chunk)]
mod cases {
    use super::*;

    /// 17 pages: never one block, so each chunk has at least two segments.
    const SIZE: usize = 17 * PAGE_SIZE;

    fn byte(i: usize) -> u8 {
        (i % 251) as u8
    }

    #[test]
    fn sizes_are_whole_pages() {
        assert!(matches!(ChunkSet::new(1, 0, -1, None), Err(error) if error == EINVAL));
        assert!(matches!(ChunkSet::new(1, 100, -1, None), Err(error) if error == EINVAL));
        assert!(matches!(ChunkSet::new(1, PAGE_SIZE + 1, -1, None), Err(error) if error == EINVAL));
    }

    #[test]
    fn new_chunks_are_zero() -> Result {
        let set = ChunkSet::new(3, SIZE, -1, None)?;
        let mut bytes = KVVec::from_elem(1u8, SIZE, GFP_KERNEL)?;
        for index in 0..3 {
            set.copy_out(index, 0, &mut bytes)?;
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
        Ok(())
    }

    #[test]
    fn copies_cross_segments() -> Result {
        let set = ChunkSet::new(2, SIZE, -1, None)?;
        assert!(set.segments(0).is_some_and(|segments| segments.len() > 1));
        let mut bytes = KVVec::with_capacity(SIZE, GFP_KERNEL)?;
        for i in 0..SIZE - 10 {
            bytes.push(byte(i), GFP_KERNEL)?;
        }
        set.copy_in(1, 5, &bytes)?;
        let mut back = KVVec::from_elem(0xffu8, SIZE, GFP_KERNEL)?;
        set.copy_out(1, 0, &mut back)?;
        for (i, &found) in back.iter().enumerate() {
            let expected = match i.checked_sub(5) {
                Some(i) if i < SIZE - 10 => byte(i),
                _ => 0,
            };
            if found != expected {
                pr_err!("byte {i} is {found}, not {expected}\n");
                return Err(EINVAL);
            }
        }
        // The other chunk was not touched.
        set.copy_out(0, 0, &mut back)?;
        assert!(back.iter().all(|&byte| byte == 0));
        Ok(())
    }

    #[test]
    fn nothing_beyond_a_chunk() -> Result {
        let set = ChunkSet::new(2, SIZE, -1, None)?;
        let mut bytes = [0; 4];
        assert_eq!(set.copy_out(0, SIZE - 3, &mut bytes), Err(EINVAL));
        assert_eq!(set.copy_in(0, SIZE - 3, &bytes), Err(EINVAL));
        assert_eq!(set.copy_in(0, usize::MAX, &bytes), Err(EINVAL));
        assert_eq!(set.copy_in(2, 0, &bytes), Err(EINVAL));
        assert_eq!(set.copy_in(usize::MAX, 0, &bytes), Err(EINVAL));
        assert_eq!(set.copy_in(1, SIZE - 4, &bytes), Ok(()));
        let chunk = Chunk::new(&set, 1)?;
        assert!(chunk.data(SIZE).is_some());
        assert!(chunk.data(SIZE + 1).is_none());
        assert!(chunk.data(usize::MAX).is_none());
        assert!(Chunk::new(&set, 2).is_err());
        assert!(Chunk::new(&set, usize::MAX).is_err());
        Ok(())
    }

    #[test]
    fn a_pool_lends_and_gets_back_zeroes() -> Result {
        let pool = ChunkPool::new(3, SIZE)?;
        assert_eq!(pool.total_memory(), 3 * SIZE);
        assert!(matches!(
            ChunkSet::new(1, SIZE - PAGE_SIZE, -1, Some(&pool)),
            Err(error) if error == EINVAL
        ));
        let first = ChunkSet::new(2, SIZE, -1, Some(&pool))?;
        assert_eq!(pool.free_memory(), SIZE);
        // The pool has only one chunk left, so the second chunk is allocated.
        let second = ChunkSet::new(2, SIZE, -1, Some(&pool))?;
        assert_eq!(pool.free_memory(), 0);
        assert_eq!(second.pooled_memory(), SIZE);
        first.copy_in(1, SIZE - 3, &[1, 2, 3])?;
        second.copy_in(0, 0, &[1, 2, 3])?;
        drop(first);
        drop(second);
        assert_eq!(pool.free_memory(), 3 * SIZE);
        let all = ChunkSet::new(3, SIZE, -1, Some(&pool))?;
        assert_eq!(all.pooled_memory(), 3 * SIZE);
        let mut bytes = KVVec::from_elem(1u8, SIZE, GFP_KERNEL)?;
        for index in 0..3 {
            all.copy_out(index, 0, &mut bytes)?;
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
        Ok(())
    }

    #[test]
    fn chunks_of_one_block_have_an_address() -> Result {
        assert!(matches!(ChunkSet::of_blocks(1, SIZE, -1, None), Err(error) if error == EINVAL));
        let size = 32 * PAGE_SIZE;
        let set = ChunkSet::of_blocks(3, size, -1, None)?;
        set.copy_in(2, size - 1, &[7])?;
        for index in 0..3 {
            let chunk = Chunk::new(&set, index)?;
            let address = chunk.address().ok_or(EINVAL)?;
            // SAFETY: The chunk exists and has `size` bytes, and no other code uses them.
            let last = unsafe { address.as_ptr().add(size - 1).read() };
            assert_eq!(last, if index == 2 { 7 } else { 0 });
            assert_eq!(chunk.data(5).and_then(|data| data.address()), Some(address));
        }
        // A chunk of several segments has no address.
        assert!(Chunk::new(&ChunkSet::new(1, SIZE, -1, None)?, 0)?
            .address()
            .is_none());
        Ok(())
    }

    #[test]
    fn a_pool_lends_its_blocks() -> Result {
        let pool = ChunkPool::new(2, PAGE_SIZE)?;
        let blocks = ChunkSet::of_blocks(3, PAGE_SIZE, -1, Some(&pool))?;
        assert_eq!(blocks.pooled_memory(), 2 * PAGE_SIZE);
        drop(blocks);
        // 17 pages are never one block, so the pool has none to lend.
        let pool = ChunkPool::new(2, SIZE)?;
        assert!(ChunkSet::of_blocks(1, SIZE, -1, Some(&pool)).is_err());
        assert_eq!(pool.free_memory(), 2 * SIZE);
        Ok(())
    }

    #[test]
    fn more_than_there_is() {
        assert!(matches!(
            ChunkSet::new(1 << 20, SIZE, -1, None),
            Err(error) if error == ENOMEM
        ));
    }

    #[test]
    fn data_stays_within_its_length() -> Result {
        let set = ChunkSet::new(1, SIZE, -1, None)?;
        let chunk = Chunk::new(&set, 0)?;
        let data = chunk.data(2).ok_or(EINVAL)?;
        assert_eq!(data.copy_in(0, &[7, 8]), Ok(()));
        assert_eq!(data.copy_in(1, &[7, 8]), Err(EINVAL));
        assert_eq!(data.copy_in(usize::MAX, &[7]), Err(EINVAL));
        assert_eq!(data.copy_in(1, &[9]), Ok(()));
        let mut bytes = [1; 3];
        set.copy_out(0, 0, &mut bytes)?;
        assert_eq!(bytes, [7, 9, 0]);
        let mut bytes = [1; 2];
        assert_eq!(data.copy_out(1, &mut bytes), Err(EINVAL));
        assert_eq!(data.copy_out(usize::MAX, &mut bytes), Err(EINVAL));
        assert_eq!(bytes, [1, 1]);
        assert_eq!(data.copy_out(0, &mut bytes), Ok(()));
        assert_eq!(bytes, [7, 9]);
        Ok(())
    }

    #[test]
    fn data_of_several_segments_comes_out() -> Result {
        let set = ChunkSet::new(1, SIZE, -1, None)?;
        let chunk = Chunk::new(&set, 0)?;
        let data = chunk.data(SIZE).ok_or(EINVAL)?;
        let start = SIZE - PAGE_SIZE - 2;
        data.copy_in(start, &[1, 2, 3, 4])?;
        let mut bytes = [9; 6];
        data.copy_out(start - 1, &mut bytes)?;
        assert_eq!(bytes, [0, 1, 2, 3, 4, 0]);
        Ok(())
    }

    #[test]
    fn words_of_a_chunk_of_one_block() -> Result {
        let set = ChunkSet::new(2, PAGE_SIZE, -1, None)?;
        let chunk = Chunk::new(&set, 1)?;
        chunk.copy_in(PAGE_SIZE - 8, &[1, 2, 3, 4, 5, 6, 7, 8])?;
        let words = [[0; 8], [1, 2, 3, 4, 5, 6, 7, 8]];
        assert_eq!(chunk.copy_words(PAGE_SIZE - 16), Some(words));
        assert_eq!(chunk.copy_words::<2>(PAGE_SIZE - 8), None);
        assert_eq!(chunk.copy_words::<1>(PAGE_SIZE), None);
        assert_eq!(chunk.copy_words::<1>(usize::MAX - 7), None);
        assert_eq!(chunk.copy_words::<1>(4), None);
        // This chunk has more than one block.
        let set = ChunkSet::new(1, SIZE, -1, None)?;
        assert_eq!(Chunk::new(&set, 0)?.copy_words::<1>(0), None);
        Ok(())
    }

    #[test]
    fn copies_from_chunk_to_chunk() -> Result {
        let (from, to) = (
            ChunkSet::new(1, SIZE, -1, None)?,
            ChunkSet::new(1, PAGE_SIZE, -1, None)?,
        );
        let (from, to) = (Chunk::new(&from, 0)?, Chunk::new(&to, 0)?);
        from.copy_in(0, &[1, 2, 3])?;
        from.copy_to(2, &to)?;
        let mut bytes = [9; 3];
        to.copy_out(0, &mut bytes)?;
        assert_eq!(bytes, [1, 2, 0]);
        assert_eq!(from.copy_to(PAGE_SIZE + 1, &to), Err(EINVAL));
        // A copy to a chunk of several blocks, across the edge between two blocks, and a copy onto
        // itself.
        let (other, long) = (
            ChunkSet::new(1, SIZE, -1, None)?,
            ChunkSet::new(1, SIZE, -1, None)?,
        );
        let (other, long) = (Chunk::new(&other, 0)?, Chunk::new(&long, 0)?);
        long.copy_in(SIZE - 2, &[4, 5])?;
        long.copy_to(SIZE, &other)?;
        other.copy_out(SIZE - 3, &mut bytes)?;
        assert_eq!(bytes, [0, 4, 5]);
        to.copy_to(1, &from)?;
        assert_eq!(from.copy_to(1, &from), Err(EINVAL));
        assert_eq!(to.copy_to(1, &to), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn data_as_segments_for_a_disk() -> Result {
        let set = ChunkSet::new(1, SIZE, -1, None)?;
        let chunk = Chunk::new(&set, 0)?;
        let data = chunk.data(SIZE - 6).ok_or(EINVAL)?;
        assert!(data.only_segment().is_none());
        let (mut total, mut count, mut whole_pages) = (0, 0, true);
        data.for_each_segment(|segment| {
            whole_pages &= segment.offset == 0 && segment.len > 0;
            total += segment.len as usize;
            count += 1;
        });
        assert_eq!(total, SIZE - 6);
        assert!(whole_pages);
        assert!(count > 1);
        Ok(())
    }
}
