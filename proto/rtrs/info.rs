// SPDX-License-Identifier: GPL-2.0

//! The exchange on connection 0 once all of a path's connections stand: the
//! client names the session, the server says where its chunks are.

use zerocopy::{
    little_endian::U16,
    FromBytes as _, //
};

use super::{
    wire::{
        self,
        to_array, //
    },
    ChunkLayout,
    MsgType,
    SgDesc, //
};
use crate::{
    name::SessName,
    ProtoError, //
};

/// The client's half: the name of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoReq {
    /// The name of the session the path belongs to.
    pub sessname: SessName,
}

impl InfoReq {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::InfoReq>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::InfoReq {
            r#type: U16::new(MsgType::InfoReq.to_wire()),
            pathname: self.sessname.to_field(),
            reserved: [0; 15],
        })
    }

    /// Checks a received message; `bytes` may be longer than it.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let (msg, _) = wire::InfoReq::ref_from_prefix(bytes).map_err(|_| ProtoError::TooShort {
            what: "info request",
            len: bytes.len(),
            need: Self::SIZE,
        })?;
        check_type("info request", msg.r#type, MsgType::InfoReq)?;
        let sessname =
            SessName::from_field(&msg.pathname).map_err(|error| ProtoError::BadName {
                field: "session name of the info request",
                error,
            })?;
        Ok(Self { sessname })
    }
}

/// Where a client writes a request: one chunk of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBuf {
    /// The address of the chunk's first byte.
    pub addr: u64,
    /// The key that grants access to it.
    pub rkey: u32,
}

/// The server's half: where the chunks are.
///
/// Describes exactly the chunks of the layout it was checked against: the
/// descriptors are whole chunks, and as many as the layout has.
#[derive(Clone, Copy, Debug)]
pub struct InfoRsp<'a> {
    descs: &'a [u8],
    chunk_size: u32,
}

impl<'a> InfoRsp<'a> {
    /// The size of the message with `sg_cnt` descriptors in bytes.
    pub const fn size(sg_cnt: u16) -> usize {
        // At most 8 + 65535 * 16.
        size_of::<wire::InfoRspHdr>().saturating_add((sg_cnt as usize).saturating_mul(SgDesc::SIZE))
    }

    /// Writes the message with these descriptors to the front of `out` and
    /// returns its size in bytes.
    pub fn write(
        out: &mut [u8],
        descs: impl ExactSizeIterator<Item = SgDesc>,
    ) -> Result<usize, ProtoError> {
        let sg_cnt = u16::try_from(descs.len()).map_err(|_| ProtoError::BadField {
            field: "sg_cnt of the info response",
            value: descs.len() as u64,
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
            r#type: U16::new(MsgType::InfoRsp.to_wire()),
            sg_cnt: U16::new(sg_cnt),
            reserved: [0; 4],
        });
        for (to, desc) in body.chunks_exact_mut(SgDesc::SIZE).zip(descs) {
            to.copy_from_slice(&desc.to_bytes());
        }
        Ok(need)
    }

    /// Checks a received message against the session's layout; `bytes` may be
    /// longer than it.
    pub fn parse(bytes: &'a [u8], layout: &ChunkLayout) -> Result<Self, ProtoError> {
        let too_short = |need| ProtoError::TooShort {
            what: "info response",
            len: bytes.len(),
            need,
        };
        let (hdr, body) =
            wire::InfoRspHdr::read_from_prefix(bytes).map_err(|_| too_short(Self::size(0)))?;
        check_type("info response", hdr.r#type, MsgType::InfoRsp)?;
        let sg_cnt = hdr.sg_cnt.get();
        // C's server always splits its chunks evenly.
        if layout.queue_depth().checked_rem(sg_cnt.into()) != Some(0) {
            return Err(ProtoError::BadField {
                field: "sg_cnt of the info response",
                value: sg_cnt.into(),
            });
        }
        let need = Self::size(sg_cnt);
        let descs = need
            .checked_sub(Self::size(0))
            .and_then(|len| body.get(..len))
            .ok_or_else(|| too_short(need))?;
        let rsp = Self {
            descs,
            chunk_size: layout.chunk_size(),
        };
        let mut total = 0u64;
        for desc in rsp.descs() {
            if desc.len == 0 || desc.len.checked_rem(layout.chunk_size()) != Some(0) {
                return Err(ProtoError::BadField {
                    field: "descriptor length of the info response",
                    value: desc.len.into(),
                });
            }
            if desc.addr.checked_add(desc.len.into()).is_none() {
                return Err(ProtoError::BadField {
                    field: "descriptor address of the info response",
                    value: desc.addr,
                });
            }
            total = total.saturating_add(desc.len.into());
        }
        if total != layout.total_size() {
            return Err(ProtoError::BadField {
                field: "total length of the info response",
                value: total,
            });
        }
        Ok(rsp)
    }

    /// The descriptors.
    pub fn descs(&self) -> impl Iterator<Item = SgDesc> + 'a {
        self.descs
            .chunks_exact(SgDesc::SIZE)
            .filter_map(|bytes| bytes.first_chunk().map(SgDesc::from_bytes))
    }

    /// The chunks in the order of their numbers; as many as the layout has.
    pub fn remote_bufs(&self) -> impl Iterator<Item = RemoteBuf> + 'a {
        let chunk_size = self.chunk_size;
        self.descs().flat_map(move |desc| {
            let chunks = desc.len.checked_div(chunk_size).unwrap_or(0);
            (0..chunks).map(move |i| RemoteBuf {
                // `parse` has checked that even the end of the last one fits.
                addr: desc
                    .addr
                    .saturating_add(u64::from(i).saturating_mul(chunk_size.into())),
                rkey: desc.key,
            })
        })
    }
}

fn check_type(what: &'static str, found: U16, expected: MsgType) -> Result<(), ProtoError> {
    if found.get() != expected.to_wire() {
        return Err(ProtoError::BadType {
            what,
            found: found.get(),
        });
    }
    Ok(())
}
