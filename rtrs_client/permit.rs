// SPDX-License-Identifier: GPL-2.0

//! The right to send a request: the permit of a tag.

use kernel_ext::{
    scatterlist::ScatterTable,
    sync::state_cell::Owned, //
};

use crate::{
    requests::{
        request::Request,
        tags::FREE, //
    },
    session::Session, //
};

/// The right to send one request, under one tag. Dropping the permit gives it back.
///
/// # Invariants
///
/// `request` is `Some` until the permit is used up.
pub struct Permit<'a> {
    session: &'a Session,
    request: Option<Owned<'a, Request>>,
    by_service_connection: bool,
}

impl<'a> Permit<'a> {
    /// The table of the data's segments, to be filled for a read or a write.
    #[inline]
    pub fn scatter(&mut self) -> Option<&mut ScatterTable> {
        Some(&mut self.request.as_mut()?.data)
    }

    /// The session.
    #[inline]
    pub(crate) fn session(&self) -> &'a Session {
        self.session
    }

    /// Has the request go by the service connection, whatever queue it is sent with. Such a request
    /// cannot be abandoned.
    pub fn use_service_connection(&mut self) {
        self.by_service_connection = true;
    }

    /// Whether the request goes by the service connection.
    #[inline]
    pub(crate) fn is_by_service_connection(&self) -> bool {
        self.by_service_connection
    }

    /// The request.
    #[inline]
    pub(crate) fn into_request(mut self) -> Option<Owned<'a, Request>> {
        self.request.take()
    }
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.session.tags.give_back(request);
        }
    }
}

impl Session {
    /// Takes the permit of `tag`. Nothing if it is taken, or if there is no such tag. Any context.
    #[inline(always)]
    pub fn permit(&self, tag: u32) -> Option<Permit<'_>> {
        Some(Permit {
            session: self,
            request: Some(self.tags.of_user(tag)?.take(FREE)?),
            by_service_connection: false,
        })
    }

    /// As [`Self::permit`], for a caller that looks for any free tag. A tag that is taken is only
    /// read, so the CPU that uses the tag's request is not disturbed.
    #[cold]
    pub fn permit_if_free(&self, tag: u32) -> Option<Permit<'_>> {
        let is_free = self.tags.of_user(tag)?.state() == FREE;
        is_free.then(|| self.permit(tag)).flatten()
    }

    /// Takes the permit of service requests.
    pub(crate) fn service_permit(&self) -> Option<Permit<'_>> {
        Some(Permit {
            session: self,
            request: Some(self.tags.of_service()?.take(FREE)?),
            by_service_connection: true,
        })
    }
}
