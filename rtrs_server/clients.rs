// SPDX-License-Identifier: GPL-2.0

//! The resources of clients in `/sys/module/rtrs_server/clients/`: in all, and in a directory for
//! each address that has a session.

use kernel::{
    new_mutex,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    ModuleMetadata, //
};
use kernel_ext::{
    kobject::ModuleDirectory,
    prelude::*,
    sysfs::{
        Attribute,
        Directory,
        SysfsOutput, //
    }, //
};
use proto::{
    addr::Address,
    admission::Usage, //
};

use crate::admission::{
    Admission,
    SessionTicket, //
};

/// What the files of an address show.
struct Client {
    admission: Arc<Admission>,
    address: Address,
}

/// The directory of an address, and how many sessions come from there.
struct ClientDirectory {
    address: Address,
    sessions: usize,
    _directory: Directory<Client>,
}

/// The directory of all clients, with those of the addresses that have a session.
///
/// # Invariants
///
/// An address has at most one directory, which counts its [`SessionPlace`]s.
#[pin_data]
pub(crate) struct Clients {
    admission: Arc<Admission>,
    #[pin]
    shown: Mutex<KVec<ClientDirectory>>,
    parent: Directory<Admission>,
}

impl Clients {
    /// Shows the clients in the folder of the module `M`. Sleeps.
    pub(crate) fn new<M: ModuleMetadata>(admission: Arc<Admission>) -> Result<Arc<Self>> {
        let parent = Directory::new(
            &ModuleDirectory::<M>::new(),
            c"clients",
            ATTRIBUTES,
            admission.clone(),
        )?;
        Arc::pin_init(
            pin_init!(Self {
                admission,
                shown <- new_mutex!(KVec::new(), "rtrs_server::Clients::shown"),
                parent,
            }),
            GFP_KERNEL,
        )
    }

    /// Takes a place for a session of the client at `address`, and shows the client's resources.
    /// Sleeps. `EBUSY` if there is no place.
    pub(crate) fn session(self: &Arc<Self>, address: Address) -> Result<SessionPlace> {
        let ticket = self.admission.session(address)?;
        let mut shown = self.shown.lock();
        let known = shown.iter_mut().find(|client| client.address == address);
        if let Some(client) = known {
            // At most the number of sessions.
            client.sessions = client.sessions.wrapping_add(1);
        } else {
            shown.reserve(1, GFP_KERNEL)?;
            let directory = self.directory(address)?;
            // There is room.
            let _ = shown.push_within_capacity(ClientDirectory {
                address,
                sessions: 1,
                _directory: directory,
            });
        }
        drop(shown);
        Ok(SessionPlace {
            clients: self.clone(),
            address,
            _ticket: ticket,
        })
    }

    fn directory(&self, address: Address) -> Result<Directory<Client>> {
        let name = CString::try_from_fmt(fmt!("{}", format_args!("{address}")))?;
        let client = Client {
            admission: self.admission.clone(),
            address,
        };
        let client = Arc::new(client, GFP_KERNEL)?;
        Directory::new(&self.parent, &name, CLIENT_ATTRIBUTES, client)
    }
}

/// The place of a session among those of all clients; given back when it is dropped, in process
/// context.
pub(crate) struct SessionPlace {
    clients: Arc<Clients>,
    address: Address,
    _ticket: SessionTicket,
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut shown = self.clients.shown.lock();
        let mut known = shown.iter_mut();
        let Some(index) = known.position(|client| client.address == self.address) else {
            return;
        };
        let Some(client) = shown.get_mut(index) else {
            return;
        };
        // Each place was counted once.
        client.sessions = client.sessions.wrapping_sub(1);
        if client.sessions == 0 {
            // The removal waits for readers of the files, which do not take the lock.
            let _ = shown.remove(index);
        }
    }
}

const ATTRIBUTES: &[Attribute<Admission>] = &[
    Attribute::read_only(c"sessions", |all, out| show(out, all.usage().sessions)),
    Attribute::read_only(c"paths", |all, out| show(out, all.usage().paths)),
    Attribute::read_only(c"connections", |all, out| {
        show(out, all.usage().connections)
    }),
    Attribute::read_only(c"half_open", |all, out| show(out, all.usage().half_open)),
    Attribute::read_only(c"refused", |all, out| show(out, all.refused())),
    Attribute::read_only(c"given_up", |all, out| show(out, all.closed_for_room())),
    Attribute::read_only(c"auth_failed", |all, out| show(out, all.auth_failed())),
];

const CLIENT_ATTRIBUTES: &[Attribute<Client>] = &[
    Attribute::read_only(c"sessions", |client, out| {
        show(out, client.usage().sessions)
    }),
    Attribute::read_only(c"paths", |client, out| show(out, client.usage().paths)),
    Attribute::read_only(c"connections", |client, out| {
        show(out, client.usage().connections)
    }),
    Attribute::read_only(c"half_open", |client, out| {
        show(out, client.usage().half_open)
    }),
];

impl Client {
    fn usage(&self) -> Usage {
        self.admission.usage_of(&self.address)
    }
}

fn show(out: &mut SysfsOutput<'_>, number: impl kernel::fmt::Display) -> Result {
    out.print(fmt!("{}\n", number))
}
