// SPDX-License-Identifier: GPL-2.0

//! Requests on a path.

use core::mem::MaybeUninit;
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};

use super::Path;
use crate::{
    request::Request,
    transfer::{
        Refused,
        SingleBatch,
        Submitted, //
    }, //
};

impl Path {
    /// Sends a request on the connection it was prepared for. Never sleeps.
    ///
    /// One function for all its callers, so that what it calls can be part of it.
    #[inline(never)]
    pub(crate) fn submit(
        self: &Arc<Self>,
        guard: &rcu::Guard,
        request: KBox<Request>,
    ) -> Result<(), Refused> {
        let Some(set) = self.connections(guard) else {
            return Err(Refused {
                request,
                error: ECONNABORTED,
            });
        };
        let (Some(transfer), Some(connection)) = (
            set.incarnation.transfer(),
            set.get(request.connection as usize),
        ) else {
            return Err(Refused {
                request,
                error: EINVAL,
            });
        };
        self.count_submitted(&request);
        let mut place = MaybeUninit::uninit();
        let batch = SingleBatch::init(&mut place);
        let mut refused = None;
        let mut submitted = transfer.add(connection, batch, request)?;
        if submitted == Submitted::Added {
            submitted = transfer.post(connection, batch, |request| refused = Some(request));
        }
        if submitted == Submitted::Broken {
            self.submission_failed();
        }
        match refused {
            None => Ok(()),
            Some(refused) => Err(refused),
        }
    }

    /// Counts a request that is about to be sent.
    #[inline]
    pub(crate) fn count_submitted(&self, request: &Request) {
        self.stats.submitted(
            request.connection as usize,
            request.kind,
            request
                .data_len()
                .wrapping_add(usize::from(request.header_len())),
        );
    }

    /// A request may have been posted in part. Only while the connections are borrowed that it was
    /// posted on: nobody has looked for requests to take back yet.
    #[cold]
    pub(crate) fn submission_failed(self: &Arc<Self>) {
        if self.connection_failed() {
            kernel_ext::pr_info_ratelimited!(
                "{}: a request could not be posted\n",
                self.name_text()
            );
        }
    }
}
