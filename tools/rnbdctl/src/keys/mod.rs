// SPDX-License-Identifier: GPL-2.0

//! The keys by which clients prove their identity: their files, and the kernel's keyring.

mod file;
mod keyring;
mod store;

pub use file::KeyFile;
pub use keyring::is_loaded;
pub use keyring::load;
pub use store::Role;
pub use store::Store;
