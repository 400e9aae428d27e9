// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_params)]
mod tests {
    use super::*;
    use crate::{
        bindings,
        module_param::{
            Parameter,
            ParameterString,
            ParameterValue, //
        }, //
    };
    use kernel::page::PAGE_SIZE;

    /// Sets a parameter as the module loader does.
    fn set<T: ParameterValue>(parameter: &Parameter<T>, text: &CStr) -> Result {
        let param = raw(parameter);
        // SAFETY: The string is valid, and the argument is a `Parameter<T>` that is not being read.
        kernel::error::to_result(unsafe {
            Parameter::<T>::set_raw(text.as_char_ptr(), &raw const param)
        })
    }

    /// Shows a parameter as sysfs does.
    fn show<T: ParameterValue>(parameter: &Parameter<T>) -> Result<KVec<u8>> {
        let mut page = KVec::from_elem(0xff, PAGE_SIZE, GFP_KERNEL)?;
        let param = raw(parameter);
        // SAFETY: `page` has a page, and the argument is a `Parameter<T>`.
        let len = unsafe { Parameter::<T>::get_raw(page.as_mut_ptr().cast(), &raw const param) };
        page.truncate(usize::try_from(len)?);
        Ok(page)
    }

    fn raw<T>(parameter: &Parameter<T>) -> bindings::kernel_param {
        // SAFETY: All zeroes is valid for a `kernel_param`.
        let mut param: bindings::kernel_param = unsafe { core::mem::zeroed() };
        param.__bindgen_anon_1.arg = core::ptr::from_ref(parameter).cast_mut().cast();
        param
    }

    fn new<T: ParameterValue>(default: T) -> Parameter<T> {
        Parameter::new(default, T::parse)
    }

    #[test]
    fn numbers_are_checked() -> Result {
        let port = new(1234u16);
        assert_eq!(&show(&port)?[..], b"1234\n");
        assert_eq!(set(&port, c"0x10"), Ok(()));
        assert_eq!(&show(&port)?[..], b"16\n");
        assert_eq!(set(&port, c"65535\n"), Ok(()));
        assert_eq!(set(&port, c"65536"), Err(ERANGE));
        assert_eq!(set(&port, c"-1"), Err(EINVAL));
        assert_eq!(set(&port, c""), Err(EINVAL));
        assert_eq!(set(&port, c"12x"), Err(EINVAL));
        assert_eq!(*port.get(), 65535);
        assert_eq!(&show(&port)?[..], b"65535\n");

        let number = new(0i32);
        assert_eq!(set(&number, c"-5"), Ok(()));
        assert_eq!(&show(&number)?[..], b"-5\n");
        assert_eq!(set(&number, c"2147483648"), Err(ERANGE));
        Ok(())
    }

    #[test]
    fn booleans_are_y_and_n() -> Result {
        let flag = new(true);
        assert_eq!(&show(&flag)?[..], b"Y\n");
        assert_eq!(set(&flag, c"off"), Ok(()));
        assert_eq!(&show(&flag)?[..], b"N\n");
        assert_eq!(set(&flag, c"maybe"), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn strings_have_a_nul_at_their_end() -> Result {
        let text = new(ParameterString::new(c"/"));
        assert_eq!(&show(&text)?[..], b"/\n");
        assert_eq!(set(&text, c"1234567"), Ok(()));
        assert_eq!(&show(&text)?[..], b"1234567\n");
        assert_eq!(set(&text, c""), Ok(()));
        assert_eq!(text.get().as_c_str(), c"");
        assert_eq!(text.get().as_bytes(), b"");
        let text = ParameterString::copy_of(b"1234567")?;
        assert_eq!(text.as_c_str(), c"1234567");
        assert_eq!(text.as_bytes(), b"1234567");
        assert!(matches!(ParameterString::copy_of(b"a\0b"), Err(error) if error == EINVAL));
        Ok(())
    }

    #[test]
    fn a_page_is_the_limit() -> Result {
        let text = KVec::from_elem(b'x', ParameterString::MAX_LEN, GFP_KERNEL)?;
        let shown = show(&new(ParameterString::copy_of(&text)?))?;
        assert_eq!(shown.len(), PAGE_SIZE - 1);
        assert!(shown.iter().all(|byte| *byte == b'x'));
        let text = KVec::from_elem(b'x', ParameterString::MAX_LEN + 1, GFP_KERNEL)?;
        assert!(matches!(ParameterString::copy_of(&text), Err(error) if error == ENOSPC));
        Ok(())
    }

    #[test]
    fn a_parser_may_refuse() -> Result {
        let parameter = Parameter::new(5i32, |default: &i32, text: &CStr| {
            let value = default.parse(text)?;
            if value > 9 {
                return Err(EDOM);
            }
            Ok(value)
        });
        assert_eq!(set(&parameter, c"7"), Ok(()));
        assert_eq!(set(&parameter, c"10"), Err(EDOM));
        assert_eq!(&show(&parameter)?[..], b"7\n");
        Ok(())
    }

    #[test]
    fn what_was_read_stays() -> Result {
        let parameter = new(5i32);
        assert_eq!(set(&parameter, c"7"), Ok(()));
        let value = parameter.get();
        assert_eq!(set(&parameter, c"8"), Err(EBUSY));
        assert_eq!(*value, 7);
        Ok(())
    }
}
