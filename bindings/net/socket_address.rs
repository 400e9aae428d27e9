// SPDX-License-Identifier: GPL-2.0

//! Socket addresses for the RDMA connection manager.
//!
//! Would be: `rust/kernel/net/socket_address.rs`.
//!
//! C headers: [`include/linux/inet.h`](srctree/include/linux/inet.h),
//! [`include/rdma/ib.h`](srctree/include/rdma/ib.h)

use super::Namespace;
use crate::{
    bindings,
    prelude::*, //
};
use core::{
    mem::size_of,
    net::Ipv6Addr, //
};
use kernel::{
    error::to_result,
    str::CString, //
};

/// A host's address, without port and interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// An IPv4 address.
    V4([u8; 4]),
    /// An IPv6 address.
    V6([u8; 16]),
    /// An InfiniBand GID.
    Gid([u8; 16]),
}

impl HostAddress {
    /// The GID that RoCE packets of this address carry.
    pub fn to_gid(self) -> [u8; 16] {
        match self {
            Self::V4([a, b, c, d]) => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            Self::V6(gid) | Self::Gid(gid) => gid,
        }
    }

    /// The IP address whose RoCE packets carry `gid`.
    pub fn of_gid(gid: [u8; 16]) -> Self {
        match gid {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Self::V4([a, b, c, d]),
            _ => Self::V6(gid),
        }
    }
}

/// An IPv4, IPv6 or InfiniBand address with a port (`struct sockaddr_storage`).
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct SocketAddress([u8; size_of::<bindings::__kernel_sockaddr_storage>()]);

/// The pkey of an InfiniBand address: the default one, full member.
const IB_DEFAULT_PKEY: u16 = 0xffff;

// The family, at offset 0 of every address. No address has an alignment of more than 8.
type Family = u16;

/// `struct sockaddr_ib` of include/rdma/ib.h.
#[repr(C)]
struct SockaddrIb {
    family: u16,
    pkey: u16,
    flowinfo: u32,
    addr: [u8; 16],
    sid: u64,
    sid_mask: u64,
    scope_id: u64,
}

/// A C structure of an address, or of its beginning.
///
/// # Safety
///
/// The type consists of numbers: all bit patterns are valid, and there is no padding.
unsafe trait Plain {}

// SAFETY: The type is a number.
unsafe impl Plain for Family {}
// SAFETY: All fields are numbers or bytes, one after the other.
unsafe impl Plain for bindings::sockaddr_in {}
// SAFETY: All fields are numbers or bytes, one after the other.
unsafe impl Plain for bindings::sockaddr_in6 {}
// SAFETY: All fields are numbers or bytes, one after the other.
unsafe impl Plain for SockaddrIb {}

impl SocketAddress {
    const NONE: Self = Self([0; size_of::<bindings::__kernel_sockaddr_storage>()]);

    /// An IPv4 address.
    pub fn v4(addr: [u8; 4], port: u16) -> Self {
        // SAFETY: All zeroes is a `sockaddr_in`.
        let mut sin: bindings::sockaddr_in = unsafe { core::mem::zeroed() };
        sin.sin_family = bindings::AF_INET as Family;
        sin.sin_port = port.to_be();
        sin.sin_addr.s_addr = u32::from_ne_bytes(addr);
        Self::from_value(sin)
    }

    /// An IPv6 address without an interface.
    pub fn v6(addr: [u8; 16], port: u16) -> Self {
        // SAFETY: All zeroes is a `sockaddr_in6`.
        let mut sin6: bindings::sockaddr_in6 = unsafe { core::mem::zeroed() };
        sin6.sin6_family = bindings::AF_INET6 as Family;
        sin6.sin6_port = port.to_be();
        sin6.sin6_addr.in6_u.u6_addr8 = addr;
        Self::from_value(sin6)
    }

    /// A link-local IPv6 address at `interface`, which is the name or the number of an interface in
    /// the namespace `net` (C: `inet_pton_with_scope`). May sleep.
    ///
    /// `EINVAL` if there is no such interface.
    pub fn v6_at(net: &Namespace, addr: [u8; 16], interface: &[u8], port: u16) -> Result<Self> {
        let interface = core::str::from_utf8(interface).map_err(|_| EINVAL)?;
        let addr = Ipv6Addr::from(addr);
        let text = CString::try_from_fmt(format_args!("{addr}%{interface}"))?;
        let port = CString::try_from_fmt(format_args!("{port}"))?;
        let mut this = Self::NONE;
        // SAFETY: The strings and the namespace are valid, and `this` has room for any address.
        to_result(unsafe {
            bindings::inet_pton_with_scope(
                net.as_raw(),
                bindings::AF_INET6 as Family,
                text.as_char_ptr(),
                port.as_char_ptr(),
                (&raw mut this.0).cast(),
            )
        })?;
        Ok(this)
    }

    /// An InfiniBand address, with a service id in place of the port.
    pub fn ib(gid: [u8; 16], service_id: u64) -> Self {
        Self::from_value(SockaddrIb {
            family: bindings::AF_IB as Family,
            pkey: IB_DEFAULT_PKEY.to_be(),
            flowinfo: 0,
            addr: gid,
            sid: service_id.to_be(),
            sid_mask: u64::MAX.to_be(),
            scope_id: 0,
        })
    }

    /// The host's address; `None` for any other family.
    pub fn host(&self) -> Option<HostAddress> {
        match u32::from(self.family()) {
            bindings::AF_INET => {
                let sin: bindings::sockaddr_in = self.to_value();
                Some(HostAddress::V4(sin.sin_addr.s_addr.to_ne_bytes()))
            }
            bindings::AF_INET6 => {
                let sin6: bindings::sockaddr_in6 = self.to_value();
                // SAFETY: Every view of this union is plain bytes.
                Some(HostAddress::V6(unsafe { sin6.sin6_addr.in6_u.u6_addr8 }))
            }
            bindings::AF_IB => Some(HostAddress::Gid(self.to_value::<SockaddrIb>().addr)),
            _ => None,
        }
    }

    /// Whether both addresses have the same host, independent of their ports. False if they have
    /// none.
    pub fn same_host(&self, other: &Self) -> bool {
        self.host().is_some() && self.host() == other.host()
    }

    /// The pointer for C functions that take a `struct sockaddr *`.
    pub(crate) fn as_raw(&self) -> *const bindings::sockaddr {
        (&raw const self.0).cast()
    }

    /// A copy of the address in a C structure.
    ///
    /// # Safety
    ///
    /// `raw` must be valid for reads, and must not be written to during the call.
    pub(crate) unsafe fn from_raw(raw: *const bindings::__kernel_sockaddr_storage) -> Self {
        // SAFETY: The caller promises that `raw` can be read, and all bit patterns are valid for a
        // `SocketAddress`.
        unsafe { raw.cast::<Self>().read() }
    }

    /// A copy of the address of a caller in C (C: `struct sockaddr *`). The address need not have
    /// more bytes than its family requires. `EAFNOSUPPORT` for a family other than IPv4, IPv6 and
    /// InfiniBand.
    ///
    /// # Safety
    ///
    /// `raw` must be valid for reads of an address of the family with which it begins, and must not
    /// be written to during the call.
    pub unsafe fn from_sockaddr(raw: *const u8) -> Result<Self> {
        // SAFETY: Each address begins with its family, and the caller promises that it can be read.
        let family = unsafe { raw.cast::<Family>().read_unaligned() };
        let len = match u32::from(family) {
            bindings::AF_INET => size_of::<bindings::sockaddr_in>(),
            bindings::AF_INET6 => size_of::<bindings::sockaddr_in6>(),
            bindings::AF_IB => size_of::<SockaddrIb>(),
            _ => return Err(EAFNOSUPPORT),
        };
        let mut this = Self::NONE;
        // SAFETY: `len` is the length of an address of the family, so the caller promises that as
        // many bytes can be read. `from_value()` checks that each address fits.
        unsafe { raw.copy_to_nonoverlapping((&raw mut this.0).cast(), len) };
        Ok(this)
    }

    /// The bytes of a `struct sockaddr_storage`, for a caller in C.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The port; for an InfiniBand address the lower part of the service id (C: `RDMA_IB_IP_PS_IB |
    /// port`). `None` for any other family.
    pub fn port(&self) -> Option<u16> {
        match u32::from(self.family()) {
            bindings::AF_INET => Some(u16::from_be(
                self.to_value::<bindings::sockaddr_in>().sin_port,
            )),
            bindings::AF_INET6 => Some(u16::from_be(
                self.to_value::<bindings::sockaddr_in6>().sin6_port,
            )),
            bindings::AF_IB => {
                let service_id = u64::from_be(self.to_value::<SockaddrIb>().sid);
                Some((service_id & 0xffff) as u16)
            }
            _ => None,
        }
    }

    /// The number of the interface of a link-local IPv6 address; 0 if there is none.
    pub fn interface(&self) -> u32 {
        match u32::from(self.family()) {
            bindings::AF_INET6 => self.to_value::<bindings::sockaddr_in6>().sin6_scope_id,
            _ => 0,
        }
    }

    fn family(&self) -> Family {
        self.to_value()
    }

    /// The address that begins with `value`.
    fn from_value<T: Plain>(value: T) -> Self {
        const {
            assert!(size_of::<T>() <= size_of::<Self>());
            assert!(align_of::<T>() <= align_of::<Self>());
        }
        let mut this = Self::NONE;
        // SAFETY: `value` fits, as checked above, and has no padding.
        unsafe { (&raw mut this.0).cast::<T>().write(value) };
        this
    }

    /// The beginning of the address, as a `T`.
    fn to_value<T: Plain>(self) -> T {
        const {
            assert!(size_of::<T>() <= size_of::<Self>());
            assert!(align_of::<T>() <= align_of::<Self>());
        }
        // SAFETY: A `T` fits, as checked above, and all bit patterns are valid for it.
        unsafe { (&raw const self.0).cast::<T>().read() }
    }
}
