// SPDX-License-Identifier: GPL-2.0

//! Requests to files, and to block devices through the page cache. Would be a new part of
//! `kernel::fs`.
//!
//! As with a block device ([`bio`](crate::block::bio)), the access mode is part of the type, and
//! each request enters the file, so closing the file waits for its requests.

use core::marker::PhantomData;
use kernel::str::CStr;

pub use super::target::Backing;
use super::{
    file::{
        Found,
        RegularFile, //
    },
    slot::{
        Slot,
        Task, //
    },
    target::Target, //
};
use crate::{
    bindings,
    block::{
        bdev::BlockDevice,
        disk::{
            Access,
            Completion,
            Position,
            RangeOp,
            ReadOnly,
            ReadWrite,
            Refused,
            Wait,
            WriteFlags, //
        },
        memory::Memory, //
    },
    prelude::*,
    sync::gate::{
        Entered,
        Gate,
        GateOwner, //
    }, //
};

/// A file, or a block device through the page cache, that is open for requests with the access `A`.
///
/// Dropping it waits for its requests and closes the file. Process context.
pub struct OpenFile<C: Completion, A: Access> {
    gate: Gate<Target>,
    _types: PhantomData<fn(C, A)>,
}

impl<C: Completion, A: Access> OpenFile<C, A> {
    /// Opens a regular file, for direct IO or for IO through the page cache; see
    /// [`RegularFile::open`].
    ///
    /// `logical_block_size` returns the alignment of requests in bytes: a power of two of at least
    /// 512, and with direct IO at least the alignment that the file system requires. An error of
    /// `logical_block_size` is returned. Sleeps.
    pub fn open(
        found: &Found,
        direct: bool,
        logical_block_size: impl FnOnce(&RegularFile) -> Result<u32>,
    ) -> Result<Self> {
        let file = RegularFile::open(found, A::MODE, direct)?;
        let logical_block_size = logical_block_size(&file)?;
        Self::of(Backing::Regular(file), direct, logical_block_size)
    }

    /// Opens the block device with the given path for IO through the page cache; see
    /// [`BlockDevice::open`]. Sleeps.
    pub fn open_device(path: &CStr) -> Result<Self> {
        let device = BlockDevice::open(path, A::MODE)?;
        let logical_block_size = device.logical_block_size();
        Self::of(Backing::Block(device), false, logical_block_size)
    }

    fn of(backing: Backing, direct: bool, logical_block_size: u32) -> Result<Self> {
        let slots = Slot::<C>::pool()?;
        Ok(Self {
            gate: Gate::new(Target::new(backing, direct, logical_block_size, slots)?)?,
            _types: PhantomData,
        })
    }

    /// Enters the file, unless it is closed or being drained. Any context.
    #[inline]
    pub fn enter(&self) -> Option<FileUse<C, A>> {
        Some(FileUse {
            entered: self.gate.enter()?,
            _types: PhantomData,
        })
    }

    /// The gate that requests enter. Closing or draining the gate waits for all requests that have
    /// entered.
    pub fn gate(&self) -> &dyn GateOwner {
        &self.gate
    }
}

/// The use of an open file, for attributes or for one request.
pub struct FileUse<C: Completion, A: Access> {
    entered: Entered<Target>,
    _types: PhantomData<fn(C, A)>,
}

impl<C: Completion, A: Access> FileUse<C, A> {
    /// The file or block device that requests read and write. Any context.
    pub fn backing(&self) -> &Backing {
        &self.entered.backing
    }

    /// Whether requests go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.entered.is_direct()
    }

    /// The smallest unit of a request, in bytes.
    pub fn logical_block_size(&self) -> u32 {
        self.entered.logical_block_size
    }

    /// Lets requests reach up to the present end of the file, and returns that end in sectors of
    /// 512 bytes. If the file grows later, requests do not reach the new bytes until the next call.
    /// Any context.
    pub fn update_size(&self) -> u64 {
        self.entered.update_size()
    }

    /// Reads into the memory of a completion. Any context with [`Wait::Never`]; [`Wait::Allowed`]
    /// sleeps.
    ///
    /// `EINVAL` if the request is not for whole blocks, `EIO` if it reaches beyond the end of the
    /// file, `EAGAIN` if it must not sleep and there is no memory.
    pub fn read(self, wait: Wait, at: Position, completion: C) -> Result<(), Refused<C>> {
        self.transfer(false, WriteFlags::default(), wait, at, completion)
    }

    /// Makes all earlier writes durable. Context and `EAGAIN` as of [`Self::read`].
    pub fn flush(self, wait: Wait, at: Position, completion: C) -> Result<(), Refused<C>> {
        submit(self.entered, Task::Flush, 0, at, wait, completion)
    }

    fn transfer(
        self,
        write: bool,
        flags: WriteFlags,
        wait: Wait,
        at: Position,
        completion: C,
    ) -> Result<(), Refused<C>> {
        let len = completion.memory().map_or(0, |memory| memory.len());
        let position = match self.entered.position(at.sector, len) {
            Ok(position) => position,
            Err(error) => return Err(Refused { completion, error }),
        };
        let task = Task::Transfer {
            write,
            flags: if flags.fua {
                bindings::RNBD_IOCB_DSYNC as i32
            } else {
                0
            },
            preflush: flags.preflush,
        };
        submit(self.entered, task, position, at, wait, completion)
    }
}

impl<C: Completion> FileUse<C, ReadWrite> {
    /// The use of the file for reads and flushes only.
    pub fn read_only(self) -> FileUse<C, ReadOnly> {
        FileUse {
            entered: self.entered,
            _types: PhantomData,
        }
    }

    /// Writes the memory of a completion. Context and errors as of [`Self::read`].
    pub fn write(
        self,
        flags: WriteFlags,
        wait: Wait,
        at: Position,
        completion: C,
    ) -> Result<(), Refused<C>> {
        self.transfer(true, flags, wait, at, completion)
    }

    /// Changes `len` bytes without data. Context and errors as of [`Self::read`]. The request ends
    /// with `EOPNOTSUPP` if the file system does not have the operation.
    pub fn range(
        self,
        op: RangeOp,
        wait: Wait,
        at: Position,
        len: u32,
        completion: C,
    ) -> Result<(), Refused<C>> {
        let task = Task::Range { op, len };
        match self.entered.position(at.sector, len as usize) {
            Ok(position) => submit(self.entered, task, position, at, wait, completion),
            Err(error) => Err(Refused { completion, error }),
        }
    }
}

fn submit<C: Completion>(
    entered: Entered<Target>,
    task: Task,
    position: i64,
    at: Position,
    wait: Wait,
    completion: C,
) -> Result<(), Refused<C>> {
    Slot::submit(
        entered,
        task,
        position,
        at.priority.as_raw(),
        wait,
        completion,
    )
    .map_err(|completion| Refused {
        completion,
        error: EAGAIN,
    })
}
