// SPDX-License-Identifier: GPL-2.0

//! The files of sessions and paths in sysfs, below `/sys/class/rtrs-client`.
//!
//! Names, modes and text are those of the C module (`rtrs-clt-sysfs.c`,
//! Documentation/ABI/testing/sysfs-class-rtrs-client). Files that C does not have are in
//! Documentation/ABI/testing/sysfs-class-rtrs-client-extensions.

use kernel::sync::Arc;
use kernel_ext::{
    device::class::ClassDevice,
    prelude::*,
    sysfs::{
        Attribute,
        Directory,
        StoreContext,
        SysfsOutput, //
    }, //
};
use proto::{
    addr::PathAddress,
    drain,
    policy::PolicyKind, //
};
use rtrs_core::sysfs::is_text;

use crate::{
    globals::globals,
    path::Path,
    policy::Policy,
    session_core::SessionCore,
    settings::Value, //
};

/// A session, as its files use it.
pub(crate) trait SessionControl: Sized + Send + Sync + 'static {
    /// The state that the paths of the session share.
    fn core(&self) -> &SessionCore;
    /// The policy, which chooses the path of each request.
    fn policy(&self) -> &Policy;
    /// Adds and connects a path. Sleeps. `EEXIST` if the session has a path with these addresses.
    fn add_path(self: &Arc<Self>, address: &PathAddress) -> Result;
    /// Lets a change of the settings take effect on all paths. Sleeps.
    fn settings_changed(&self);
}

/// The file of a setting.
macro_rules! setting {
    ($name:literal, $field:ident) => {
        Attribute::read_write(
            $name,
            |session, out| out.print(fmt!("{}\n", session.core().settings.$field.get())),
            |session, _, bytes| store_setting(&**session, &session.core().settings.$field, bytes),
        )
    };
}

/// The directory of a session, and the directory of its paths in it.
pub(crate) struct SessionFiles<S: SessionControl> {
    // Dropped before the device that it is in.
    paths: Arc<Directory<()>>,
    device: ClassDevice<S>,
}

impl<S: SessionControl> SessionFiles<S> {
    const ATTRIBUTES: &'static [Attribute<S>] = &[
        setting!(c"max_reconnect_attempts", max_reconnect_attempts),
        setting!(c"hb_interval_ms", hb_interval_ms),
        setting!(c"hb_missed_max", hb_missed_max),
        setting!(c"reconnect_delay_ms", reconnect_delay_ms),
        setting!(c"connect_timeout_ms", connect_timeout_ms),
        setting!(c"hold_io_ms", hold_io_ms),
        setting!(c"ack_timeout_ms", ack_timeout_ms),
        Attribute::read_only(c"drain", |session, out| {
            match session.core().drain.left_ms() {
                Some(ms) => out.print(fmt!("{}\n", drain::seconds_of(ms))),
                None => out.print(fmt!("off\n")),
            }
        }),
        Attribute::read_write(
            c"mpath_policy",
            |session, out| {
                let kind = session.policy().kind();
                let (name, short) = kind.names();
                out.print(fmt!("{} ({}: {})\n", name, short, kind as u32))
            },
            |session, _, bytes| {
                let kind = PolicyKind::parse(bytes).ok_or(EINVAL)?;
                session.policy().set(kind);
                Ok(())
            },
        ),
        Attribute::read_write(
            c"add_path",
            |_, out| {
                out.print(fmt!(
                    "Usage: echo [<source addr>@]<destination addr> > add_path\n\n\
                         *addr ::= [ ip:<ipv4|ipv6> | gid:<gid> ]\n"
                ))
            },
            |session, _, bytes| {
                let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or(bytes);
                let address = PathAddress::parse(line).map_err(|error| {
                    pr_err!(
                        "{}: add_path: {}\n",
                        session.core().name_text(),
                        error.message().as_str()
                    );
                    EINVAL
                })?;
                session.add_path(&address)
            },
        ),
    ];

    /// Makes the directories of `session`. Sleeps. `EEXIST` if the name is in use.
    pub(crate) fn new(session: &Arc<S>) -> Result<Self> {
        let class = &globals()?.class;
        let device = class.device(session.core().name(), Self::ATTRIBUTES, session.clone())?;
        let paths = Arc::new(Directory::empty(&device, c"paths")?, GFP_KERNEL)?;
        device.announce();
        Ok(Self { paths, device })
    }

    /// The directory of the paths.
    pub(crate) fn paths(&self) -> Arc<Directory<()>> {
        self.paths.clone()
    }

    /// Removes all files. When it returns, none of their functions runs any more. Sleeps.
    pub(crate) fn remove(&self) {
        self.device.remove();
    }
}

/// The directory of a path.
pub(crate) struct PathFiles {
    // In the order of removal.
    _stats: Directory<Path>,
    _directory: Directory<Path>,
}

impl PathFiles {
    /// Makes the directory of `path` in `paths`. Sleeps.
    pub(crate) fn new(paths: &Directory<()>, path: &Arc<Path>) -> Result<Self> {
        let directory = Directory::new(paths, path.file_name()?, PATH_ATTRIBUTES, path.clone())?;
        Ok(Self {
            _stats: Directory::new(&directory, c"stats", STATS_ATTRIBUTES, path.clone())?,
            _directory: directory,
        })
    }
}

const PATH_ATTRIBUTES: &[Attribute<Path>] = &[
    Attribute::read_only(c"hca_name", |path, out| match &*path.device.lock() {
        Some(device) => out.print(fmt!("{}\n", &*device.name)),
        None => out.print(fmt!("\n")),
    }),
    Attribute::read_only(c"hca_port", |path, out| {
        let port = path.device.lock().as_ref().map_or(0, |device| device.port);
        out.print(fmt!("{}\n", port))
    }),
    Attribute::read_only(c"src_addr", |path, out| {
        out.print(fmt!("{}\n", path.source_text().as_str()))
    }),
    Attribute::read_only(c"dst_addr", |path, out| {
        out.print(fmt!("{}\n", path.address().dst.to_text().as_str()))
    }),
    Attribute::read_only(c"state", |path, out| {
        out.print(fmt!("{}\n", path.state().sysfs_str()))
    }),
    Attribute::read_write(
        c"reconnect",
        |_, out| out.print(fmt!("Usage: echo 1 > reconnect\n")),
        |path, context, bytes| {
            check_echo_1(path, context, bytes)?;
            path.reconnect_now()
        },
    ),
    Attribute::read_write(
        c"disconnect",
        |_, out| out.print(fmt!("Usage: echo 1 > disconnect\n")),
        |path, context, bytes| {
            check_echo_1(path, context, bytes)?;
            path.close();
            Ok(())
        },
    ),
    Attribute::read_write(
        c"remove_path",
        |_, out| out.print(fmt!("Usage: echo 1 > remove_path\n")),
        |path, context, bytes| {
            check_echo_1(path, context, bytes)?;
            context.keep_module(path.session.events.module()?);
            // The directory of this very file is removed.
            context.release_protection()?;
            path.owner.remove_path(path);
            Ok(())
        },
    ),
    Attribute::read_only(c"cur_latency", |path, out| {
        out.print(fmt!("{} ns\n", path.heartbeat.latency_ns()))
    }),
];

const STATS_ATTRIBUTES: &[Attribute<Path>] = &[
    Attribute::read_write(
        c"cpu_migration_from",
        |path, out| print_all(out, path.stats.migrated_from()),
        |path, _, bytes| reset(bytes, || path.stats.reset_migrations()),
    ),
    Attribute::read_write(
        c"cpu_migration_to",
        |path, out| print_all(out, path.stats.migrated_to()),
        |path, _, bytes| reset(bytes, || path.stats.reset_migrations()),
    ),
    Attribute::read_write(
        c"reconnects",
        |path, out| {
            let (successful, failed) = path.stats.reconnects();
            out.print(fmt!("{} {}\n", successful, failed))
        },
        |path, _, bytes| reset(bytes, || path.stats.reset_reconnects()),
    ),
    Attribute::read_write(
        c"rdma",
        |path, out| {
            let sums = path.stats.totals();
            out.print(fmt!(
                "{} {} {} {} {} {}\n",
                sums.reads,
                sums.read_bytes,
                sums.writes,
                sums.write_bytes,
                path.in_flight(),
                path.stats.failovers()
            ))
        },
        |path, _, bytes| reset(bytes, || path.stats.reset_rdma()),
    ),
    Attribute::read_write(
        c"reset_all",
        |_, out| out.print(fmt!("echo 1 to reset all statistics\n")),
        |path, _, bytes| {
            reset(bytes, || {
                path.stats.reset_rdma();
                path.stats.reset_migrations();
                path.stats.reset_reconnects();
            })
        },
    ),
];

/// Numbers, each followed by a space, as C prints them.
fn print_all(out: &mut SysfsOutput<'_>, numbers: impl Iterator<Item = u64>) -> Result {
    for number in numbers {
        out.print(fmt!("{} ", number))?;
    }
    out.print(fmt!("\n"))
}

fn store_setting<S: SessionControl>(session: &S, value: &Value, bytes: &[u8]) -> Result {
    // A value that does not change begins no time anew.
    if value.set(session.core().name_text(), bytes)? {
        session.settings_changed();
    }
    Ok(())
}

/// Checks that `bytes` are `1`. Otherwise logs that and returns `EINVAL`.
fn check_echo_1(path: &Path, context: &StoreContext<'_>, bytes: &[u8]) -> Result {
    if is_text(bytes, "1") {
        return Ok(());
    }
    pr_err!(
        "{}: {}: invalid value, write 1\n",
        path.name_text(),
        context.file_name().to_str().unwrap_or("?")
    );
    Err(EINVAL)
}

/// Writing 1 resets a statistic; 0 is refused, as in C.
fn reset(bytes: &[u8], reset: impl FnOnce()) -> Result {
    if !is_text(bytes, "1") {
        return Err(EINVAL);
    }
    reset();
    Ok(())
}
