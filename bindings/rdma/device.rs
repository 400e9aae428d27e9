// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! Would be: `rust/kernel/rdma/device.rs`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    bindings,
    compat::DeviceLimit,
    prelude::*, //
};
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    fmt,
    str::BStr,
    types::Opaque, //
};

/// The entries of a completion queue that are added for draining: one for each of the two queues of
/// a queue pair.
pub(super) const DRAIN_ENTRIES: u32 = 2;

/// An RDMA device, borrowed from a holder of the device.
///
/// # Invariants
///
/// The wrapped `ib_device` is valid and registered, or being unregistered but not freed.
#[repr(transparent)]
pub struct Device(Opaque<bindings::ib_device>);

// SAFETY: The fields that are read through a shared reference do not change after registration,
// except for the name, which `name()` copies byte by byte.
unsafe impl Sync for Device {}

// SAFETY: As for `Sync`; there are no owned values of this type.
unsafe impl Send for Device {}

impl Device {
    /// # Safety
    ///
    /// `raw` must point to a registered device that stays for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: The type is a transparent wrapper; validity is the caller's promise.
        unsafe { &*raw.cast() }
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    fn attributes(&self) -> *const bindings::ib_device_attr {
        // SAFETY: The device is valid as long as there is a reference to this.
        unsafe { &raw const (*self.as_raw()).attrs }
    }

    /// Takes a reference that keeps the device registered.
    ///
    /// Unregistering the device waits until the handle is dropped. `ENODEV` once the device is
    /// being unregistered.
    pub fn handle(&self) -> Result<DeviceHandle> {
        // SAFETY: The device is valid as long as there is a reference to this.
        if !unsafe { bindings::rnbd_helper_ib_device_try_get(self.as_raw()) } {
            return Err(ENODEV);
        }
        // INVARIANT: The reference was just taken.
        Ok(DeviceHandle(NonNull::from(self)))
    }

    /// The name, for example `rxe0`, as it is at this moment.
    pub fn name(&self) -> DeviceName {
        let mut name = DeviceName {
            bytes: [0; NAME_MAX],
        };
        // SAFETY: The device is valid as long as there is a reference to this. A rename may change
        // the array at the same time, so it is copied by volatile reads of single bytes.
        let source = unsafe { &raw const (*self.as_raw()).name }.cast::<u8>();
        // The last byte stays zero.
        for (i, byte) in name.bytes.iter_mut().take(NAME_MAX - 1).enumerate() {
            // SAFETY: `i` is less than the length of the array.
            *byte = unsafe { source.add(i).read_volatile() };
        }
        name
    }

    /// The number of completion vectors, that is, of interrupts to choose from; at least 1.
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: The device is valid as long as there is a reference to this.
        let vectors = unsafe { (*self.as_raw()).num_comp_vectors };
        // The RDMA core starts with 1 and drivers only raise it.
        vectors.max(1).unsigned_abs()
    }

    /// The MTU of a port in bytes: the most data in a packet that the port sends at present.
    /// Sleeps.
    ///
    /// `EINVAL` if there is no such port, `EIO` if the driver reports an unknown MTU, and the
    /// driver's own errors.
    pub fn active_mtu(&self, port: u32) -> Result<u32> {
        let mut attributes = bindings::ib_port_attr::default();
        // SAFETY: The device is valid, and the attributes are written to during the call only. The
        // function checks the number of the port.
        to_result(unsafe { bindings::ib_query_port(self.as_raw(), port, &mut attributes) })?;
        match attributes.active_mtu {
            // `IB_MTU_256` is 1, and each further number stands for twice the size.
            number @ 1..=5 => Ok(128 << number),
            _ => Err(EIO),
        }
    }

    /// The most scatter entries that a send or RDMA write may have.
    pub fn max_send_sge(&self) -> u32 {
        // SAFETY: `attributes()` is valid.
        unsafe { (*self.attributes()).max_send_sge }.limit()
    }

    /// The most pages that one fast registration covers.
    pub fn max_fast_reg_page_list_len(&self) -> u32 {
        // SAFETY: `attributes()` is valid.
        unsafe { (*self.attributes()).max_fast_reg_page_list_len }
    }

    /// The most work requests that a queue pair may be made with, for each of its two queues.
    ///
    /// The device's limit less 1, as each queue pair keeps one work request for draining; at least
    /// 0.
    pub fn max_qp_wr(&self) -> u32 {
        // SAFETY: `attributes()` is valid.
        unsafe { (*self.attributes()).max_qp_wr }
            .limit()
            .saturating_sub(1)
    }

    /// The most entries that a completion queue may be made with: the device's limit less the
    /// entries for draining; at least 0.
    pub fn max_cqe(&self) -> u32 {
        // SAFETY: `attributes()` is valid.
        unsafe { (*self.attributes()).max_cqe }
            .limit()
            .saturating_sub(DRAIN_ENTRIES)
    }

    /// Whether memory can be registered by a work request (`IB_DEVICE_MEM_MGT_EXTENSIONS`).
    pub fn has_fast_registration(&self) -> bool {
        // SAFETY: `attributes()` is valid.
        let flags = unsafe { (*self.attributes()).device_cap_flags };
        flags & bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64 != 0
    }

    /// Whether a registration may have gaps between segments (`IBK_SG_GAPS_REG`).
    pub fn has_gap_registration(&self) -> bool {
        // SAFETY: `attributes()` is valid.
        let flags = unsafe { (*self.attributes()).kernel_cap_flags };
        flags & u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG) != 0
    }

    /// The NUMA node, or -1 if none is known.
    pub fn numa_node(&self) -> i32 {
        // SAFETY: The device is valid as long as there is a reference to this.
        unsafe { bindings::rnbd_helper_ibdev_to_node(self.as_raw()) }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for Device {}

/// A reference that keeps a device registered.
///
/// # Invariants
///
/// Owns one count of `ib_device::refcount`.
pub struct DeviceHandle(NonNull<Device>);

// SAFETY: The count may be put in any context, and `Device` is `Sync`.
unsafe impl Send for DeviceHandle {}

// SAFETY: Only gives out `&Device`, which is `Sync`.
unsafe impl Sync for DeviceHandle {}

impl Deref for DeviceHandle {
    type Target = Device;

    fn deref(&self) -> &Device {
        // SAFETY: The count keeps the device, so it is valid.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        // SAFETY: The count that this owns ends here.
        unsafe { bindings::ib_device_put(self.as_raw()) };
    }
}

/// `IB_DEVICE_NAME_MAX`.
const NAME_MAX: usize = 64;

/// A copy of a device's name.
#[derive(Clone, Copy)]
pub struct DeviceName {
    bytes: [u8; NAME_MAX],
}

impl DeviceName {
    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.split(|&byte| byte == 0).next().unwrap_or(&[])
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(BStr::from_bytes(self.as_bytes()), f)
    }
}
