// SPDX-License-Identifier: GPL-2.0

//! Sessions and paths in sysfs: `/sys/class/rtrs-server/<session>/paths/<client@server>/`.

use kernel::{
    new_mutex,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    device::class::ClassDevice,
    prelude::*,
    rdma::QueuePair,
    sysfs::{
        Attribute,
        Directory,
        StoreContext,
        SysfsOutput, //
    }, //
};
use proto::client_id::ClientId;
use rtrs_core::{
    address::Shown,
    sysfs::is_text,
    traffic::Totals, //
};

use crate::{
    connection::Connection,
    context::Context,
    operation::PathIo,
    path::Path,
    path_core::SharedName,
    session_io::SessionIo, //
};

/// The data that a session's files show.
struct SessionFiles {
    identity: Option<ClientId>,
    session: Arc<SessionIo<PathIo>>,
}

/// The data that a path's files show.
struct PathFiles {
    path: Arc<Path>,
    hca_name: CString,
    hca_port: u32,
}

/// The directory of a path.
struct PathDirectory {
    path: Arc<Path>,
    // In the order of removal.
    _stats: Directory<PathFiles>,
    _directory: Directory<PathFiles>,
}

/// The directory of a session.
struct SessionDirectory {
    // In the order of removal.
    paths: KVec<PathDirectory>,
    parent: Directory<()>,
    _device: ClassDevice<SessionFiles>,
}

/// The directories of a session and its paths. The session's directory is there while a path has
/// one.
#[pin_data]
pub(crate) struct SessionSysfs {
    #[pin]
    directory: Mutex<Option<SessionDirectory>>,
}

impl SessionSysfs {
    /// No directories.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            directory <- new_mutex!(None, "rtrs_server::SessionSysfs::directory"),
        })
    }

    /// Makes the directory of `path`, whose service connection is `service`. Sleeps.
    pub(crate) fn add(
        &self,
        path: &Arc<Path>,
        service: &QueuePair<Connection<PathIo>>,
        name: &SharedName,
        session: &Arc<SessionIo<PathIo>>,
        context: &Context,
    ) -> Result {
        let device = service.id().device().ok_or(ENODEV)?;
        let files = Arc::new(
            PathFiles {
                path: path.clone(),
                hca_name: CString::try_from_fmt(fmt!("{}", device.name()))?,
                hca_port: service.id().port_num(),
            },
            GFP_KERNEL,
        )?;
        let mut place = self.directory.lock();
        let mut directory = match place.take() {
            Some(directory) => directory,
            None => SessionDirectory::new(name, path.identity().copied(), session, context)?,
        };
        let added = directory.add(path, files).inspect_err(|error| {
            kernel_ext::pr_err_ratelimited!(
                "<{}>: making the path's directory failed: {:?}\n",
                path,
                error
            );
        });
        if !directory.paths.is_empty() {
            *place = Some(directory);
        }
        added
    }

    /// Removes the directory of `path`, if there is one. With the last one the session's directory
    /// is removed, too. Sleeps.
    pub(crate) fn remove(&self, path: &Arc<Path>) {
        let mut place = self.directory.lock();
        let Some(directory) = &mut *place else { return };
        directory
            .paths
            .retain(|other| !Arc::ptr_eq(&other.path, path));
        if directory.paths.is_empty() {
            *place = None;
        }
    }
}

impl SessionDirectory {
    fn new(
        name: &SharedName,
        identity: Option<ClientId>,
        session: &Arc<SessionIo<PathIo>>,
        context: &Context,
    ) -> Result<Self> {
        let name = name.as_cstr();
        let files = SessionFiles {
            identity,
            session: session.clone(),
        };
        let files = Arc::new(files, GFP_KERNEL)?;
        let device = context
            .class
            .device(name, SESSION_ATTRIBUTES, files)
            .inspect_err(|error| {
                kernel_ext::pr_err_ratelimited!(
                    "<{}>: making the session's directory failed: {:?}\n",
                    name,
                    error
                );
            })?;
        let parent = Directory::empty(&device, c"paths")?;
        device.announce();
        Ok(Self {
            paths: KVec::new(),
            parent,
            _device: device,
        })
    }

    fn add(&mut self, path: &Arc<Path>, files: Arc<PathFiles>) -> Result {
        let name = path.core().name();
        let directory = Directory::new(&self.parent, name, PATH_ATTRIBUTES, files.clone())?;
        self.paths.push(
            PathDirectory {
                path: path.clone(),
                _stats: Directory::new(&directory, c"stats", STATS_ATTRIBUTES, files)?,
                _directory: directory,
            },
            GFP_KERNEL,
        )?;
        Ok(())
    }
}

const SESSION_ATTRIBUTES: &[Attribute<SessionFiles>] = &[
    Attribute::read_only(c"client_id", |files, out| match &files.identity {
        Some(client) => out.print(fmt!("{}\n", client.as_str())),
        None => out.print(fmt!("\n")),
    }),
    Attribute::read_only(c"memory_bytes", |files, out| {
        out.print(fmt!("{}\n", files.session.memory()))
    }),
    Attribute::read_only(c"pooled_memory_bytes", |files, out| {
        out.print(fmt!("{}\n", files.session.chunks().pooled_memory()))
    }),
];

const PATH_ATTRIBUTES: &[Attribute<PathFiles>] = &[
    Attribute::read_only(c"hca_name", |files, out| {
        out.print(fmt!("{}\n", &*files.hca_name))
    }),
    Attribute::read_only(c"hca_port", |files, out| {
        out.print(fmt!("{}\n", files.hca_port))
    }),
    // From the client's point of view, as in the directory's name.
    Attribute::read_only(c"src_addr", |files, out| {
        out.print(fmt!("{}\n", Shown(*files.path.core().peer())))
    }),
    Attribute::read_only(c"dst_addr", |files, out| {
        out.print(fmt!("{}\n", Shown(*files.path.core().local())))
    }),
    Attribute::read_write(c"disconnect", show_disconnect, store_disconnect),
];

const STATS_ATTRIBUTES: &[Attribute<PathFiles>] =
    &[Attribute::read_write(c"rdma", show_rdma, store_rdma)];

fn show_disconnect(_files: &Arc<PathFiles>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("Usage: echo 1 > disconnect\n"))
}

fn store_disconnect(files: &Arc<PathFiles>, _context: &StoreContext<'_>, written: &[u8]) -> Result {
    let path = &files.path;
    if !is_text(written, "1") {
        kernel_ext::pr_err_ratelimited!("<{}>: disconnect: invalid value, write 1\n", path);
        return Err(EINVAL);
    }
    if path.close() {
        pr_info!("<{}>: disconnect requested\n", path);
    }
    Ok(())
}

fn show_rdma(files: &Arc<PathFiles>, out: &mut SysfsOutput<'_>) -> Result {
    let io = files.path.core().enter();
    let totals = io.map_or(Totals::default(), |io| io.traffic.totals());
    out.print(fmt!(
        "{} {} {} {}\n",
        totals.reads,
        totals.read_bytes,
        totals.writes,
        totals.write_bytes
    ))
}

fn store_rdma(files: &Arc<PathFiles>, _context: &StoreContext<'_>, written: &[u8]) -> Result {
    if !is_text(written, "1") {
        return Err(EINVAL);
    }
    if let Some(io) = files.path.core().enter() {
        io.traffic.reset();
    }
    Ok(())
}
