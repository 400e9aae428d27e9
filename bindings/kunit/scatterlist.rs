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
        let too_much = PageBuffer::LEN as u32 + 1;
        assert_eq!(table.set_buffer(PageBuffer::new()?, too_much), Err(EINVAL));
        assert_eq!(table.set_buffer(PageBuffer::new()?, 0), Err(EINVAL));
        assert_eq!(table.used, 0);
        let mut buffer = PageBuffer::new()?;
        assert!(buffer.write(PageBuffer::LEN - 1, b"ab").is_err());
        assert!(buffer.write(usize::MAX, b"ab").is_err());
        assert!(buffer.read(PageBuffer::LEN, &mut [0]).is_err());
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
}
