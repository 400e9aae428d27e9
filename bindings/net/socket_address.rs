// SPDX-License-Identifier: GPL-2.0

//! Addresses as the RDMA connection manager takes them.

use core::mem::size_of;
use kernel::{
    error::to_result,
    fmt,
    prelude::*,
    str::CString, //
};
use proto::addr::{
    Address,
    Scope,
    IB_SERVICE_ID_PREFIX, //
};

use crate::bindings;

/// An IPv4, IPv6 or InfiniBand address with a port (`struct sockaddr_storage`).
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct SocketAddress([u8; size_of::<bindings::__kernel_sockaddr_storage>()]);

/// The pkey of an InfiniBand address: the default one, full member.
const IB_DEFAULT_PKEY: u16 = 0xffff;

// Each of them starts with its family, at offset 0 and of this size, and is no more aligned.
type Family = u16;
const _: () = assert!(align_of::<bindings::sockaddr_in>() <= align_of::<SocketAddress>());
const _: () = assert!(align_of::<bindings::sockaddr_in6>() <= align_of::<SocketAddress>());
const _: () = assert!(align_of::<SockaddrIb>() <= align_of::<SocketAddress>());
const _: () = assert!(size_of::<SockaddrIb>() <= size_of::<SocketAddress>());

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

/// What an address of a family is, at its beginning.
///
/// # Safety
///
/// A type of plain numbers: any bytes are one, and none of them is padding.
unsafe trait Plain {}

// SAFETY: It is a number.
unsafe impl Plain for Family {}
// SAFETY: All fields are numbers or bytes, one after the other.
unsafe impl Plain for bindings::sockaddr_in {}
// SAFETY: As above.
unsafe impl Plain for bindings::sockaddr_in6 {}
// SAFETY: As above.
unsafe impl Plain for SockaddrIb {}

impl SocketAddress {
    /// The address with a port.
    ///
    /// The interface of a link-local IPv6 address is looked up in the initial network namespace;
    /// `EINVAL` if there is none of that name. On InfiniBand the port becomes the service id, as
    /// the C modules have it. May sleep.
    pub fn new(address: &Address, port: u16) -> Result<Self> {
        match address {
            Address::V4(addr) => {
                // SAFETY: All zeroes is a `sockaddr_in`.
                let mut sin: bindings::sockaddr_in = unsafe { core::mem::zeroed() };
                sin.sin_family = bindings::AF_INET as Family;
                sin.sin_port = port.to_be();
                sin.sin_addr.s_addr = u32::from_ne_bytes(*addr);
                Ok(Self::from_value(sin))
            }
            Address::V6 { addr, scope } if scope.is_none() => {
                // SAFETY: All zeroes is a `sockaddr_in6`.
                let mut sin6: bindings::sockaddr_in6 = unsafe { core::mem::zeroed() };
                sin6.sin6_family = bindings::AF_INET6 as Family;
                sin6.sin6_port = port.to_be();
                sin6.sin6_addr.in6_u.u6_addr8 = *addr;
                Ok(Self::from_value(sin6))
            }
            Address::V6 { scope, .. } => Self::with_scope(address, scope, port),
            Address::Gid(gid) => Ok(Self::from_value(SockaddrIb {
                family: bindings::AF_IB as Family,
                pkey: IB_DEFAULT_PKEY.to_be(),
                flowinfo: 0,
                addr: *gid,
                sid: (IB_SERVICE_ID_PREFIX | u64::from(port)).to_be(),
                sid_mask: u64::MAX.to_be(),
                scope_id: 0,
            })),
        }
    }

    /// Any IPv4 or IPv6 address of this machine, to listen on.
    pub fn any_ip(port: u16) -> Result<Self> {
        let any = Address::V6 {
            addr: [0; 16],
            scope: Scope::NONE,
        };
        Self::new(&any, port)
    }

    /// Any InfiniBand address of this machine, to listen on.
    pub fn any_ib(port: u16) -> Result<Self> {
        Self::new(&Address::Gid([0; 16]), port)
    }

    /// The address, without port and interface; `None` for a family that is none of the three.
    pub fn address(&self) -> Option<Address> {
        match u32::from(self.family()) {
            bindings::AF_INET => {
                let sin: bindings::sockaddr_in = self.to_value();
                Some(Address::V4(sin.sin_addr.s_addr.to_ne_bytes()))
            }
            bindings::AF_INET6 => {
                let sin6: bindings::sockaddr_in6 = self.to_value();
                Some(Address::V6 {
                    // SAFETY: Every view of this union is plain bytes.
                    addr: unsafe { sin6.sin6_addr.in6_u.u6_addr8 },
                    scope: Scope::NONE,
                })
            }
            bindings::AF_IB => {
                let sib: SockaddrIb = self.to_value();
                Some(Address::Gid(sib.addr))
            }
            _ => None,
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        match u32::from(self.family()) {
            bindings::AF_INET => {
                let sin: bindings::sockaddr_in = self.to_value();
                u16::from_be(sin.sin_port)
            }
            bindings::AF_INET6 => {
                let sin6: bindings::sockaddr_in6 = self.to_value();
                u16::from_be(sin6.sin6_port)
            }
            bindings::AF_IB => {
                let sib: SockaddrIb = self.to_value();
                // Only the low 16 bits of the service id are the port.
                u64::from_be(sib.sid) as u16
            }
            _ => 0,
        }
    }

    /// Whether both are the same address, whatever their ports (C: `sockaddr_cmp`).
    pub fn same_address(&self, other: &Self) -> bool {
        match (self.address(), other.address()) {
            (Some(a), Some(b)) => a.same_as(&b),
            _ => false,
        }
    }

    /// For the C functions that take a `struct sockaddr *`.
    pub(crate) fn as_raw(&self) -> *const bindings::sockaddr {
        (&raw const self.0).cast()
    }

    /// A copy of what a C structure holds.
    ///
    /// # Safety
    ///
    /// `raw` must be valid for reads, and not be written at the same time.
    pub(crate) unsafe fn from_raw(raw: *const bindings::__kernel_sockaddr_storage) -> Self {
        // SAFETY: The caller promises that it can be read; any bytes are a `SocketAddress`.
        unsafe { raw.cast::<Self>().read() }
    }

    /// A link-local address with an interface, as the kernel itself reads it.
    fn with_scope(address: &Address, scope: &Scope, port: u16) -> Result<Self> {
        let text = address.to_text();
        let text = text.as_str().strip_prefix("ip:").ok_or(EINVAL)?;
        let scope = core::str::from_utf8(scope.as_bytes()).map_err(|_| EINVAL)?;
        let text = CString::try_from_fmt(fmt!("{text}%{scope}"))?;
        let port = CString::try_from_fmt(fmt!("{port}"))?;
        let mut this = Self([0; size_of::<bindings::__kernel_sockaddr_storage>()]);
        // SAFETY: The strings are valid, `init_net` always exists, and `this` has room for any
        // address.
        to_result(unsafe {
            bindings::inet_pton_with_scope(
                &raw mut bindings::init_net,
                bindings::AF_INET6 as Family,
                text.as_char_ptr(),
                port.as_char_ptr(),
                (&raw mut this.0).cast(),
            )
        })?;
        Ok(this)
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
        let mut this = Self([0; size_of::<bindings::__kernel_sockaddr_storage>()]);
        // SAFETY: It fits, as checked above, and has no padding.
        unsafe { (&raw mut this.0).cast::<T>().write(value) };
        this
    }

    /// What is at the beginning, as a `T`.
    fn to_value<T: Plain>(self) -> T {
        const {
            assert!(size_of::<T>() <= size_of::<Self>());
            assert!(align_of::<T>() <= align_of::<Self>());
        }
        // SAFETY: It fits, as checked above, and any bytes are one.
        unsafe { (&raw const self.0).cast::<T>().read() }
    }
}

impl fmt::Display for SocketAddress {
    /// As the C modules show it, without port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("<invalid address family>"),
        }
    }
}
