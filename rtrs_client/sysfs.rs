// SPDX-License-Identifier: GPL-2.0

//! The files of sessions and paths in sysfs.

use kernel::{prelude::*, sync::Arc};

use crate::{path::Path, session::Session};

pub(crate) struct PathsDirectory;

pub(crate) struct SessionFiles {
    paths: Arc<PathsDirectory>,
}

impl SessionFiles {
    pub(crate) fn new(_session: &Arc<Session>) -> Result<Self> {
        Ok(Self {
            paths: Arc::new(PathsDirectory, GFP_KERNEL)?,
        })
    }
    pub(crate) fn paths(&self) -> Arc<PathsDirectory> {
        self.paths.clone()
    }
    pub(crate) fn remove_attributes(self) -> (Option<()>, Option<Arc<PathsDirectory>>) {
        (None, Some(self.paths))
    }
}

pub(crate) struct PathFiles;

impl PathFiles {
    pub(crate) fn new(_dir: Arc<PathsDirectory>, _path: &Arc<Path>) -> Result<Self> {
        Ok(Self)
    }
}
