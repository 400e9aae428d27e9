// SPDX-License-Identifier: GPL-2.0

//! Reads the kernel's files.
//!
//! Objects that vanish while they are read (another process unmaps a device) are left out. Invalid
//! content becomes `None`. Control characters never reach a terminal. A module that is not loaded
//! has no files; that is not an error here.

mod client;
mod clients;
mod find;
mod loaded;
mod net;
mod rdma;
pub(crate) mod read;
mod server;

use std::path::Path;
use std::path::PathBuf;

pub use find::Found;
pub(crate) use read::printable;
pub(crate) use read::text as file_text;

/// The machine: the places of its files.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    sys: PathBuf,
}

impl System {
    /// The machine whose files are in `root` (default: `/`), except that sysfs is at `sysfs`
    /// (default: `sys` in `root`).
    pub fn new(root: Option<&Path>, sysfs: Option<&Path>) -> Self {
        let root = root.unwrap_or(Path::new("/")).to_path_buf();
        Self {
            sys: sysfs.map_or_else(|| root.join("sys"), Path::to_path_buf),
            root,
        }
    }

    /// A file or folder below `/sys`; `name` has no leading slash.
    pub fn sys(&self, name: &str) -> PathBuf {
        self.sys.join(name)
    }

    /// A file or folder below `/`; `name` has no leading slash.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The device node of a disk.
    pub fn device_node(&self, name: &str) -> PathBuf {
        self.root.join("dev").join(name)
    }

    /// Whether the kernel module is loaded (or built in, and has parameters or users).
    pub fn is_loaded(&self, module: &str) -> bool {
        self.sys("module").join(module).is_dir()
    }
}
