// SPDX-License-Identifier: GPL-2.0

//! The exchange on connection 0 once all connections of a path are established: the client names
//! the session, and the server tells where its chunks are.

use zerocopy::FromBytes as _;

use super::{
    conn::errno_of_refusal,
    wire::{
        self,
        MsgType, //
    },
    ChunkLayout, //
};
use crate::{
    errno::Errno,
    error::ProtoError,
    name::SessName,
    wire::{
        check_type,
        split,
        to_array, //
    }, //
};

/// Memory of one end that the peer may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SgDesc {
    /// The address, as the owner of the memory sees it.
    pub addr: u64,
    /// The key that grants access.
    pub key: u32,
    /// The length in bytes.
    pub len: u32,
}

impl SgDesc {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::SgDesc>();

    /// The wire form.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::SgDesc {
            addr: self.addr.into(),
            key: self.key.into(),
            len: self.len.into(),
        })
    }
}

impl From<&wire::SgDesc> for SgDesc {
    #[inline]
    fn from(wire: &wire::SgDesc) -> Self {
        Self {
            addr: wire.addr.get(),
            key: wire.key.get(),
            len: wire.len.get(),
        }
    }
}

/// The client's message: the name of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoReq {
    /// The name of the session that the path belongs to.
    pub sessname: SessName,
}

impl InfoReq {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::InfoReq>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::InfoReq {
            r#type: MsgType::InfoReq.to_wire(),
            pathname: self.sessname.to_field(),
            reserved: [0; 15],
        })
    }

    /// Checks a received message; `bytes` may be longer than the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let what = "info request";
        let (msg, _) = split::<wire::InfoReq>(bytes, what)?;
        check_type(what, msg.r#type, MsgType::InfoReq as u16)?;
        let sessname =
            SessName::from_field(&msg.pathname).map_err(|error| ProtoError::BadName {
                field: "session name of the info request",
                error,
            })?;
        Ok(Self { sessname })
    }
}

/// A chunk of the server, where a client writes a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBuf {
    /// The address of the chunk's first byte.
    pub addr: u64,
    /// The key that grants access to the chunk.
    pub rkey: u32,
}

/// The server's message: where the chunks are.
///
/// # Invariants
///
/// The descriptors describe exactly the chunks of the layout against which the message was checked:
/// each describes whole chunks of `chunk_size` bytes, none wraps around, and together they have as
/// many chunks as the layout.
#[derive(Clone, Copy)]
pub struct InfoRsp<'a> {
    descs: &'a [wire::SgDesc],
    chunk_size: u32,
}

impl<'a> InfoRsp<'a> {
    /// The size of the message with `sg_cnt` descriptors in bytes.
    pub const fn size(sg_cnt: u16) -> usize {
        // The size is at most 8 + 65535 * 16.
        size_of::<wire::InfoRspHdr>().wrapping_add((sg_cnt as usize).wrapping_mul(SgDesc::SIZE))
    }

    /// Writes the message with these descriptors to the front of `out` and
    /// returns its size in bytes.
    pub fn write(
        out: &mut [u8],
        descs: impl ExactSizeIterator<Item = SgDesc>,
    ) -> Result<usize, ProtoError> {
        let sg_cnt = u16::try_from(descs.len()).map_err(|_| {
            ProtoError::bad_field("sg_cnt of the info response", descs.len() as u64)
        })?;
        let need = Self::size(sg_cnt);
        let no_room = ProtoError::NoRoom {
            what: "info response",
            len: out.len(),
            need,
        };
        let (hdr, body) = out
            .get_mut(..need)
            .and_then(|out| out.split_first_chunk_mut())
            .ok_or(no_room)?;
        *hdr = to_array::<_, { size_of::<wire::InfoRspHdr>() }>(&wire::InfoRspHdr {
            r#type: MsgType::InfoRsp.to_wire(),
            sg_cnt: sg_cnt.into(),
            errno: 0u16.into(),
            reserved: [0; 2],
        });
        for (to, desc) in body.chunks_exact_mut(SgDesc::SIZE).zip(descs) {
            to.copy_from_slice(&desc.to_bytes());
        }
        Ok(need)
    }

    /// The message to a client that is refused, for a path with
    /// [`FEATURE_REFUSAL`](super::FEATURE_REFUSAL).
    pub fn refusal(errno: Errno) -> [u8; size_of::<wire::InfoRspHdr>()] {
        to_array(&wire::InfoRspHdr {
            r#type: MsgType::InfoRsp.to_wire(),
            sg_cnt: 0u16.into(),
            // At most 4095, so the cast loses nothing.
            errno: (errno.to_kernel() as u16).into(),
            reserved: [0; 2],
        })
    }

    /// Checks a received message against the session's layout; `bytes` may be longer than the
    /// message.
    ///
    /// [`ProtoError::Refused`] if the server refuses the client.
    pub fn parse(bytes: &'a [u8], layout: &ChunkLayout) -> Result<Self, ProtoError> {
        let what = "info response";
        let (hdr, body) = split::<wire::InfoRspHdr>(bytes, what)?;
        check_type(what, hdr.r#type, MsgType::InfoRsp as u16)?;
        let bad = |field, value: u64| Err(ProtoError::bad_field(field, value));
        let sg_cnt = hdr.sg_cnt.get();
        if sg_cnt == 0 && hdr.errno.get() != 0 {
            return Err(ProtoError::Refused(errno_of_refusal(hdr.errno)));
        }
        // C's server always splits its chunks evenly.
        if layout.queue_depth().checked_rem(sg_cnt.into()) != Some(0) {
            return bad("sg_cnt of the info response", sg_cnt.into());
        }
        let (descs, _) = <[wire::SgDesc]>::ref_from_prefix_with_elems(body, sg_cnt.into())
            .map_err(|_| ProtoError::TooShort {
                what,
                len: bytes.len(),
                need: Self::size(sg_cnt),
            })?;
        let chunk_size = layout.chunk_size();
        let rsp = Self { descs, chunk_size };
        let mut total = 0u64;
        for desc in rsp.descs() {
            if desc.len == 0 || desc.len.checked_rem(chunk_size) != Some(0) {
                return bad("descriptor length of the info response", desc.len.into());
            }
            if desc.addr.checked_add(desc.len.into()).is_none() {
                return bad("descriptor address of the info response", desc.addr);
            }
            // The sum of at most 65535 lengths of 32 bits does not overflow.
            total = total.wrapping_add(desc.len.into());
        }
        if total != layout.total_size() {
            return bad("total length of the info response", total);
        }
        // INVARIANT: Each descriptor and the sum of their lengths were checked above.
        Ok(rsp)
    }

    /// The descriptors.
    pub fn descs(&self) -> impl Iterator<Item = SgDesc> + 'a {
        self.descs.iter().map(SgDesc::from)
    }

    /// The chunks in the order of their numbers, as many as the layout has.
    pub fn remote_bufs(&self) -> impl Iterator<Item = RemoteBuf> + 'a {
        let step = self.chunk_size;
        self.descs().flat_map(move |desc| {
            // By the type's invariant no address wraps around.
            let end = desc.addr.wrapping_add(desc.len.into());
            let addresses = (desc.addr..end).step_by(step as usize);
            addresses.map(move |addr| RemoteBuf {
                addr,
                rkey: desc.key,
            })
        })
    }
}
