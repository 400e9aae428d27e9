// SPDX-License-Identifier: GPL-2.0

//! Sessions and paths in sysfs: `/sys/class/rtrs-server/<session>/paths/<client@server>/`.

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};
use kernel_ext::{
    device::class::ClassDevice,
    rdma::QueuePair,
    sysfs::{
        Attribute,
        Directory,
        StoreContext,
        SysfsOutput, //
    }, //
};
use rtrs_core::sysfs::is_text;

use crate::{
    connection::Connection,
    path::Path,
    session::Session, //
};

/// The directory of a session, as long as one of its paths has one.
pub(crate) struct SessionDirectory {
    // In the order of removal.
    paths: Directory<()>,
    _device: ClassDevice<SessionFiles>,
    /// How many paths have a directory.
    users: usize,
}

/// What a session's files show.
struct SessionFiles {
    memory: usize,
    pooled_memory: usize,
}

/// What a path's files show.
struct PathFiles {
    path: Arc<Path>,
    hca_name: CString,
    hca_port: u32,
}

/// The directory of a path; removed when dropped, with that of the session after the last one.
pub(crate) struct PathDirectory {
    // Before the parent.
    directory: Option<Directory<PathFiles>>,
    session: Arc<Session>,
}

impl PathDirectory {
    /// Makes the directory of `path`, whose service connection is `service`. Sleeps.
    pub(crate) fn new(path: &Arc<Path>, service: &QueuePair<Connection>) -> Result<Self> {
        let session = path.session();
        let device = service.id().device().ok_or(ENODEV)?;
        let files = Arc::new(
            PathFiles {
                path: path.clone(),
                hca_name: CString::try_from_fmt(fmt!("{}", device.name()))?,
                hca_port: service.id().port_num(),
            },
            GFP_KERNEL,
        )?;

        let mut directory = session.directory().lock();
        if directory.is_none() {
            *directory = Some(SessionDirectory::new(session)?);
        }
        let parent = (*directory).as_mut().ok_or(ENOENT)?;
        parent.users = parent.users.saturating_add(1);
        // Whatever fails below, dropping this removes the session's directory if need be; the
        // lock must be free then.
        let mut this = Self {
            directory: None,
            session: session.clone(),
        };
        let made = Directory::new(&parent.paths, path.name(), PATH_ATTRIBUTES, files).and_then(
            |directory| {
                directory.add_group(c"stats", STATS_ATTRIBUTES)?;
                Ok(directory)
            },
        );
        drop(directory);
        this.directory = Some(made.inspect_err(|error| {
            kernel_ext::pr_err_ratelimited!(
                "<{}>: making the path's directory failed: {:?}\n",
                path,
                error
            );
        })?);
        Ok(this)
    }
}

impl Drop for PathDirectory {
    fn drop(&mut self) {
        drop(self.directory.take());
        let mut directory = self.session.directory().lock();
        if let Some(parent) = (*directory).as_mut() {
            parent.users = parent.users.saturating_sub(1);
            if parent.users == 0 {
                *directory = None;
            }
        }
    }
}

impl SessionDirectory {
    fn new(session: &Session) -> Result<Self> {
        let class = &session.context().class;
        let chunks = session.chunks();
        let files = Arc::new(
            SessionFiles {
                memory: chunks.memory().saturating_add(session.private().memory()),
                pooled_memory: chunks.pooled_memory(),
            },
            GFP_KERNEL,
        )?;
        let device = class
            .device(session.name(), SESSION_ATTRIBUTES, files)
            .inspect_err(|error| {
                kernel_ext::pr_err_ratelimited!(
                    "<{}>: making the session's directory failed: {:?}\n",
                    session.name(),
                    error
                );
            })?;
        let paths = Directory::empty(&device, c"paths")?;
        device.announce();
        Ok(Self {
            paths,
            _device: device,
            users: 0,
        })
    }
}

const SESSION_ATTRIBUTES: &[Attribute<SessionFiles>] = &[
    Attribute::read_only(c"memory_bytes", |files, out| {
        out.print(fmt!("{}\n", files.memory))
    }),
    Attribute::read_only(c"pooled_memory_bytes", |files, out| {
        out.print(fmt!("{}\n", files.pooled_memory))
    }),
];

const PATH_ATTRIBUTES: &[Attribute<PathFiles>] = &[
    Attribute::read_only(c"hca_name", |files, out| {
        out.print(fmt!("{}\n", &*files.hca_name))
    }),
    Attribute::read_only(c"hca_port", |files, out| {
        out.print(fmt!("{}\n", files.hca_port))
    }),
    // From the client's point of view, as the directory's name.
    Attribute::read_only(c"src_addr", |files, out| {
        out.print(fmt!("{}\n", files.path.peer()))
    }),
    Attribute::read_only(c"dst_addr", |files, out| {
        out.print(fmt!("{}\n", files.path.local()))
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
        kernel_ext::pr_err_ratelimited!("<{}>: disconnect: invalid value, it takes 1\n", path);
        return Err(EINVAL);
    }
    if path.close() {
        pr_info!("<{}>: disconnect requested\n", path);
    }
    Ok(())
}

fn show_rdma(files: &Arc<PathFiles>, out: &mut SysfsOutput<'_>) -> Result {
    let totals = files.path.stats().totals();
    out.print(fmt!(
        "{} {} {} {}\n",
        totals.reads,
        totals.read_bytes,
        totals.writes,
        totals.written_bytes
    ))
}

fn store_rdma(files: &Arc<PathFiles>, _context: &StoreContext<'_>, written: &[u8]) -> Result {
    if !is_text(written, "1") {
        return Err(EINVAL);
    }
    files.path.stats().reset();
    Ok(())
}
