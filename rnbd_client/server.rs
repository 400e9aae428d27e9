// SPDX-License-Identifier: GPL-2.0

//! All messages that the client sends outside of the IO path: session information, the name of the
//! machine, open and close, news, discovery, reservations. [`Server`] also knows which extensions
//! the server uses in the present epoch.

use kernel::sync::Arc;
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    random,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::{
    name::{
        Name,
        SessName, //
    },
    rnbd::{
        AccessMode,
        Close,
        Discover,
        DiscoverRsp,
        Identity,
        IoMode,
        News,
        NewsRsp,
        Open,
        OpenRsp,
        Report,
        Reservation,
        SessInfo,
        FEATURE_CLOSED,
        FEATURE_DISCOVERY,
        FEATURE_IDENTITY,
        FEATURE_IO_MODE,
        FEATURE_NEWS,
        FEATURE_RESERVATIONS,
        KNOWN_FEATURES, //
    },
    ProtoError, //
};
use rtrs_client::ServiceData;
use rtrs_core::error::from_errno;

use crate::params::HOST_UUID;

/// What the server said when it opened a device.
pub(crate) struct Opened {
    pub(crate) response: OpenRsp,
    /// `None` if the server does not know of identities; the identity may have no wwid.
    pub(crate) identity: Option<Identity>,
    /// The epoch in which the server gave the device's number.
    pub(crate) epoch: u32,
}

/// Counts the sessions that the server has had for a session of the client, from 1: the server
/// forgets a session when its last path is lost. What the server said of a device in an earlier
/// epoch is void.
pub(crate) struct Epoch(Atomic<u32>);

impl Epoch {
    pub(crate) fn new() -> Self {
        Self(Atomic::new(1))
    }

    /// The present epoch. Any context.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(ordering::Acquire)
    }

    /// Begins the next epoch: the last path was lost. Any context.
    pub(crate) fn end(&self) {
        self.0.fetch_add(1, ordering::Full);
    }
}

/// A server, as the devices of a session use it.
pub(crate) struct Server {
    /// The name of the session.
    pub(crate) session: SessName,
    pub(crate) transport: Arc<rtrs_client::Session>,
    epoch: Arc<Epoch>,
    /// The upper half is the last epoch in which the server was sent the session information, 0 for
    /// none. The lower half has the extensions that are used in that epoch.
    greeted: Atomic<u64>,
}

impl Server {
    pub(crate) fn new(
        session: SessName,
        transport: Arc<rtrs_client::Session>,
        epoch: Arc<Epoch>,
    ) -> Self {
        Self {
            session,
            transport,
            epoch,
            greeted: Atomic::new(0),
        }
    }

    /// The present epoch. Any context.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    /// Sends the session information, by which the server learns which version of the protocol to
    /// speak, and the name of this machine, unless that was done in the present epoch. Returns the
    /// epoch. Sleeps.
    ///
    /// The server's error, or `EINVAL` for an invalid response.
    pub(crate) fn greet(&self) -> Result<u32> {
        let mut epoch = self.epoch();
        if self.features_in(epoch).is_some() {
            return Ok(epoch);
        }
        let mut response = [0; SessInfo::SIZE];
        let message = SessInfo::new(KNOWN_FEATURES, random::u64());
        let data = ServiceData::FromServer(&mut response);
        self.transport
            .service_request(&message.to_bytes(), data, || {
                epoch = self.epoch();
                Ok(())
            })?;
        let answer = message
            .parse_rsp(&response)
            .map_err(|error| self.malformed(&error))?;
        if answer.features() & FEATURE_RESERVATIONS != 0 {
            if let Some(host) = &HOST_UUID.get().0 {
                self.request_in(epoch, &host.to_bytes(), ServiceData::None)?;
            }
        }
        // Not in a later epoch: another caller may have greeted the server there by now.
        if self.epoch() == epoch {
            let greeted = u64::from(epoch) << 32 | u64::from(answer.features());
            self.greeted.store(greeted, ordering::Relaxed);
        }
        Ok(epoch)
    }

    /// The extensions that are used in an epoch; `None` if they are not agreed on yet. Any context.
    pub(crate) fn features_in(&self, epoch: u32) -> Option<u32> {
        let greeted = self.greeted.load(ordering::Relaxed);
        // Two halves of 32 bits.
        ((greeted >> 32) as u32 == epoch).then_some(greeted as u32)
    }

    /// Opens a device. Returns the server's response and its epoch. Sleeps.
    ///
    /// The server has the session information of that epoch: without it a C server drops
    /// priorities.
    ///
    /// `wish` is how the server is to read and write the disk. Without a wish, `used` is how the
    /// server did so when the device was opened last: a server that knows of IO modes does so
    /// again.
    ///
    /// Returns the server's error, `ECONNABORTED` if no path is up, `EOPNOTSUPP` if the server
    /// does not know of the given `wish`, or `EINVAL` for an invalid response. After an invalid
    /// response the device is closed again.
    pub(crate) fn open(
        &self,
        path: &Name,
        access_mode: AccessMode,
        wish: Option<IoMode>,
        used: Option<IoMode>,
    ) -> Result<Opened> {
        let mut bytes = [0; OpenRsp::SIZE + Identity::SIZE];
        let mut message = Open {
            access_mode,
            io_mode: None,
            dev_name: *path,
        };
        let (epoch, features) = loop {
            // Without a path this fails.
            let epoch = self.greet()?;
            let Some(features) = self.features_in(epoch) else {
                // The session was lost meanwhile.
                continue;
            };
            message.io_mode = self.io_mode_to_ask(features, wish, used)?;
            // A server that does not know of identities may have old data behind its response.
            let len = if features & FEATURE_IDENTITY != 0 {
                bytes.len()
            } else {
                OpenRsp::SIZE
            };
            let data = ServiceData::FromServer(bytes.get_mut(..len).ok_or(EINVAL)?);
            match self.request_in(epoch, &message.to_bytes(), data) {
                Ok(()) => break (epoch, features),
                Err(ECONNABORTED) if self.epoch() != epoch => continue,
                Err(error) => return Err(error),
            }
        };
        let (response, identity) = bytes.split_at(OpenRsp::SIZE);
        let has_identity = features & FEATURE_IDENTITY != 0;
        let identity = has_identity.then(|| Identity::parse(identity)).transpose();
        OpenRsp::parse(response, features)
            .and_then(|response| {
                Ok(Opened {
                    response,
                    identity: identity?,
                    epoch,
                })
            })
            .map_err(|error| {
                if let Some(device_id) = OpenRsp::device_id_of(response) {
                    // The error of the response is the one to report.
                    let _ = self.close(device_id, epoch);
                }
                self.malformed(&error)
            })
    }

    /// The IO mode to ask for, of a server with these features; see [`Self::open`]. Any context.
    fn io_mode_to_ask(
        &self,
        features: u32,
        wish: Option<IoMode>,
        used: Option<IoMode>,
    ) -> Result<Option<IoMode>> {
        if features & FEATURE_IO_MODE != 0 {
            return Ok(wish.or(used));
        }
        if wish.is_none() {
            return Ok(None);
        }
        pr_err_ratelimited!(
            "session {}: the server does not know io_mode=: map its devices without io_mode=\n",
            self.session.as_cstr()
        );
        Err(EOPNOTSUPP)
    }

    /// The present epoch, if the server tells news in it. Any context.
    pub(crate) fn epoch_with_news(&self) -> Option<u32> {
        let epoch = self.epoch();
        let features = self.features_in(epoch)?;
        (features & FEATURE_NEWS != 0).then_some(epoch)
    }

    /// Asks for news in `epoch`; `buffer`, which has room for the longest response, gets the
    /// response. Also returns for how many ms the server goes away, if it tells that. Sleeps.
    ///
    /// The server's error, `EINVAL` for an invalid response, which is logged, and `ECONNABORTED` in
    /// a later epoch.
    pub(crate) fn ask_news<'a>(
        &self,
        epoch: u32,
        request: &News,
        buffer: &'a mut [u8],
    ) -> Result<(NewsRsp<'a>, Option<u32>)> {
        let data = ServiceData::FromServer(&mut *buffer);
        self.request_in(epoch, &request.to_bytes(), data)?;
        let features = self.features_in(epoch).ok_or(ECONNABORTED)?;
        NewsRsp::parse(buffer, request)
            .and_then(|response| Ok((response, response.drain_ms(features)?)))
            .map_err(|error| self.malformed(&error))
    }

    /// Asks which disks this client could open; `buffer`, which has room for the longest response,
    /// gets the response. Sleeps.
    ///
    /// The server's error, `EOPNOTSUPP` if the server does not tell, which is logged, `EINVAL` for
    /// an invalid response, which is logged, and `ECONNABORTED` without a path.
    pub(crate) fn discover<'a>(
        &self,
        request: &Discover,
        buffer: &'a mut [u8],
    ) -> Result<DiscoverRsp<'a>> {
        loop {
            let epoch = self.greet()?;
            let Some(features) = self.features_in(epoch) else {
                // The session was lost meanwhile.
                continue;
            };
            if features & FEATURE_DISCOVERY == 0 {
                pr_err_ratelimited!(
                    "session {}: the server does not list its disks (C's server, a release before \
                     0.2.0, or discovery=N): ask its administrator for the device paths\n",
                    self.session.as_cstr()
                );
                return Err(EOPNOTSUPP);
            }
            let data = ServiceData::FromServer(&mut *buffer);
            match self.request_in(epoch, &request.to_bytes(), data) {
                Ok(()) => break,
                Err(ECONNABORTED) if self.epoch() != epoch => {}
                Err(error) => return Err(error),
            }
        }
        DiscoverRsp::parse(buffer, request).map_err(|error| self.malformed(&error))
    }

    /// Whether the server knows of reservations in `epoch`. Any context.
    pub(crate) fn has_reservations(&self, epoch: u32) -> bool {
        self.has_feature(epoch, FEATURE_RESERVATIONS)
    }

    /// Whether the server tells in `epoch` which devices it has closed. Any context.
    pub(crate) fn tells_of_closing(&self, epoch: u32) -> bool {
        self.has_feature(epoch, FEATURE_CLOSED)
    }

    fn has_feature(&self, epoch: u32, feature: u32) -> bool {
        let features = self.features_in(epoch);
        features.is_some_and(|features| features & feature != 0)
    }

    /// Sends a command about the reservation of a disk, in `epoch`. `is_open` is called when the
    /// message is sent: whether the device of the message is still open. Sleeps.
    ///
    /// The server's error, `EINPROGRESS` if the command is not over yet; `ECONNABORTED` without a
    /// path, in a later epoch, and if the device is not open.
    pub(crate) fn command(
        &self,
        message: &Reservation,
        epoch: u32,
        is_open: impl Fn() -> bool,
    ) -> Result {
        self.request_if(epoch, is_open, &message.to_bytes(), ServiceData::None)
    }

    /// Asks how a disk is reserved, in `epoch`; `is_open` as for [`Self::command`]. Sleeps.
    ///
    /// The server's error, `EINPROGRESS` if requests that the reservation forbids are not over yet,
    /// `EINVAL` for an invalid response, which is logged, and `ECONNABORTED` as for
    /// [`Self::command`].
    pub(crate) fn report(
        &self,
        device_id: u32,
        epoch: u32,
        is_open: impl Fn() -> bool,
    ) -> Result<Report> {
        let mut response = [0; Report::SIZE];
        let message = Reservation::report(device_id).to_bytes();
        let data = ServiceData::FromServer(&mut response);
        self.request_if(epoch, is_open, &message, data)?;
        Report::parse(&response).map_err(|error| self.malformed(&error))
    }

    /// Closes the device that the server gave `device_id` in `epoch`. Sleeps.
    ///
    /// The server's error; `ECONNABORTED` in a later epoch: the number may be another device's
    /// then.
    pub(crate) fn close(&self, device_id: u32, epoch: u32) -> Result {
        self.request_in(epoch, &Close { device_id }.to_bytes(), ServiceData::None)
    }

    /// Sends a message. The server's error; `ECONNABORTED` in a later epoch.
    fn request_in(&self, epoch: u32, message: &[u8], data: ServiceData<'_>) -> Result {
        self.request_if(epoch, || true, message, data)
    }

    /// Does what [`Self::request_in`] does; `ECONNABORTED` also if `condition` does not hold when
    /// the message is sent.
    fn request_if(
        &self,
        epoch: u32,
        condition: impl Fn() -> bool,
        message: &[u8],
        data: ServiceData<'_>,
    ) -> Result {
        self.transport.service_request(message, data, || {
            if self.epoch() == epoch && condition() {
                Ok(())
            } else {
                Err(ECONNABORTED)
            }
        })
    }

    fn malformed(&self, error: &ProtoError) -> Error {
        kernel_ext::pr_err_ratelimited!(
            "session {}: the client refuses a response of the server: {}\n",
            self.session.as_cstr(),
            error.message().as_str()
        );
        from_errno(error.errno())
    }
}
