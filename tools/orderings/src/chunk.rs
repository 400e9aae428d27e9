// SPDX-License-Identifier: GPL-2.0

//! What the claims use of `rtrs_server/chunk.rs`.

use crate::{
    prelude::KBox,
    sync::box_slot::Linked, //
};
use std::sync::Arc;

/// A chunk as one path sees it.
pub(crate) struct PathChunk<P: Send + Sync + 'static> {
    pub(crate) id: u32,
    pub(crate) entered: Option<Arc<P>>,
}

pub(crate) type ChunkBox<P> = KBox<Linked<PathChunk<P>>>;
