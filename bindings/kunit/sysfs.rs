// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_sysfs)]
mod tests {
    use super::*;
    use crate::{
        device::class::Class,
        kobject::{
            sysfs_name,
            uevent,
            AsKobject,
            Uevent, //
        },
        sysfs::{
            Attribute,
            BinaryAttribute,
            Directory,
            Link, //
        }, //
    };
    use core::fmt::Write;
    use kernel::sync::Arc;

    const ATTRIBUTES: &[Attribute<u32>] = &[
        Attribute::read_only(c"value", |value, out| Ok(writeln!(out, "{}", **value)?)),
        Attribute::read_write(c"other", |_, _| Ok(()), |_, _, _| Ok(())),
    ];

    fn class() -> Result<Class> {
        Class::new(c"rnbd-kunit")
    }

    fn is_last<T>(data: Arc<T>) -> bool {
        Arc::into_unique_or_drop(data).is_some()
    }

    fn contains(object: &impl AsKobject, name: &CStr) -> Option<bool> {
        // SAFETY: The object is not removed while this closure runs.
        object.with_kobject(|kobject| unsafe { kobject.contains(name) })
    }

    #[test]
    fn names_are_made_fit() -> Result {
        assert_eq!(
            sysfs_name(c"ip:1.2.3.4@ip:5.6.7.8")?.to_bytes(),
            b"ip:1.2.3.4@ip:5.6.7.8"
        );
        assert_eq!(sysfs_name(c"/dev/x")?.to_bytes(), b"!dev!x");
        assert_eq!(sysfs_name(c"").err(), Some(EINVAL));
        assert_eq!(sysfs_name(c".").err(), Some(EINVAL));
        assert_eq!(sysfs_name(c"..").err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn data_are_dropped_with_the_directory() -> Result {
        let device = class()?.device(c"device", &[], Arc::new((), GFP_KERNEL)?)?;
        let data = Arc::new(7, GFP_KERNEL)?;
        let directory = Directory::new(&device, c"a/b", ATTRIBUTES, data.clone())?;
        let below = Directory::new(&directory, c"stats", ATTRIBUTES, data.clone())?;
        assert_eq!(contains(&device, c"a!b"), Some(true));
        assert_eq!(contains(&directory, c"value"), Some(true));
        assert_eq!(contains(&directory, c"stats"), Some(true));

        directory.remove();
        directory.remove();
        assert_eq!(contains(&device, c"a!b"), Some(false));
        assert_eq!(contains(&directory, c"value"), None);
        assert_eq!(contains(&below, c"value"), Some(false));
        drop(below);
        assert_eq!(Directory::empty(&directory, c"below").err(), Some(ENODEV));
        assert_eq!(uevent(&directory, Uevent::Change), Err(ENODEV));
        assert!(is_last(data));
        Ok(())
    }

    #[test]
    fn names_are_taken_once() -> Result {
        let class = class()?;
        let device = class.device(c"device", &[], Arc::new((), GFP_KERNEL)?)?;
        let other = class.device(c"device", &[], Arc::new((), GFP_KERNEL)?);
        assert_eq!(other.err(), Some(EEXIST));

        let data = Arc::new(7, GFP_KERNEL)?;
        let directory = Directory::empty(&device, c"name")?;
        let other = Directory::new(&device, c"name", ATTRIBUTES, data.clone());
        assert_eq!(other.err(), Some(EEXIST));
        assert!(is_last(data));

        let link = Link::new(&directory, &device, c"link/1")?;
        assert_eq!(contains(&directory, c"link!1"), Some(true));
        let other = Link::new(&directory, &device, c"link!1");
        assert_eq!(other.err(), Some(EEXIST));
        drop(link);
        assert_eq!(contains(&directory, c"link!1"), Some(false));

        drop(directory);
        drop(Directory::empty(&device, c"name")?);
        drop(device);
        drop(class.device(c"device", &[], Arc::new((), GFP_KERNEL)?)?);
        Ok(())
    }

    static LONG: BinaryAttribute<u32> =
        BinaryAttribute::new(c"file", |_, _, _| Ok(()), |_, _, _, _| Ok(()));

    #[test]
    fn binary_files_go_with_their_device() -> Result {
        let device = class()?.device(c"device", ATTRIBUTES, Arc::new(7, GFP_KERNEL)?)?;
        device.add_file(&LONG)?;
        assert_eq!(contains(&device, c"file"), Some(true));
        assert_eq!(device.add_file(&LONG).err(), Some(EEXIST));
        device.remove();
        assert_eq!(device.add_file(&LONG).err(), Some(ENODEV));
        Ok(())
    }

    #[test]
    fn parents_may_go_first() -> Result {
        let device = class()?.device(c"device", ATTRIBUTES, Arc::new(1, GFP_KERNEL)?)?;
        device.announce();
        let outer = Directory::empty(&device, c"outer")?;
        let inner = Directory::new(&outer, c"inner", ATTRIBUTES, Arc::new(2, GFP_KERNEL)?)?;
        let link = Link::new(&inner, &device, c"device")?;
        device.remove();
        device.remove();
        outer.remove();
        assert_eq!(Link::new(&inner, &device, c"again").err(), Some(ENOENT));
        drop(outer);
        drop(device);
        drop(inner);
        drop(link);
        Ok(())
    }
}
