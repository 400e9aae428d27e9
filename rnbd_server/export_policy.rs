// SPDX-License-Identifier: GPL-2.0

//! The export policy: which client may open which device
//! (`/sys/class/rnbd-server/ctl/export_policy`). An extension.
//!
//! Without a policy every client may open every device below the search path, as with the C
//! server. A policy is loaded as a whole or not at all.

use core::fmt::Write;
use kernel::{
    new_mutex,
    str::CStr,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited,
    pr_warn_ratelimited,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu::RcuArc, //
    },
    sysfs::{
        OpenFile,
        SysfsOutput, //
    }, //
};
use proto::{
    addr::{
        Address,
        PATH_TEXT_LEN, //
    },
    client_id::ClientId,
    export_policy::{
        self,
        Query,
        Start, //
    },
    name::SessName,
    rnbd::AccessMode,
    text::Text, //
};
use rtrs_core::error::from_errno;

/// A session as the policy knows it.
pub(crate) struct Subject {
    /// The name that the client gave the session.
    pub(crate) name: SessName,
    /// The client, if it has proved its identity.
    client_id: Option<ClientId>,
    /// The number of the policy that was the last to refuse the session something; 0 for none.
    refused_by: Atomic<u32>,
}

impl Subject {
    /// A session that was refused nothing.
    pub(crate) fn new(name: SessName, client_id: Option<ClientId>) -> Self {
        Self {
            name,
            client_id,
            refused_by: Atomic::new(0),
        }
    }
}

impl Subject {
    /// The session on a path from `client`, as the rules take it.
    fn from(&self, client: Option<Address>) -> export_policy::Subject<'_> {
        export_policy::Subject {
            session: &self.name,
            client_id: self.client_id.as_ref(),
            client,
        }
    }

    /// The session's proof of identity, for the log.
    fn identity(&self) -> Text<96> {
        Text::from_fn(|out| match &self.client_id {
            Some(id) => write!(out, "client id {id}"),
            None => out.write_str("no proof of identity"),
        })
    }

    /// Whether policy `number` has refused the session nothing so far; from now on it has.
    fn is_first_refusal(&self, number: u32) -> bool {
        self.refused_by.xchg(number, ordering::Relaxed) != number
    }
}

/// The policy of the server.
#[pin_data]
pub(crate) struct ExportPolicy {
    current: RcuArc<Policy>,
    /// The server must not be without a policy.
    required: bool,
    #[pin]
    writing: Mutex<Writing>,
}

/// A policy in force.
struct Policy {
    /// The number of the policy, from 1. Each policy has another number.
    number: u32,
    text: KVVec<u8>,
}

impl Policy {
    /// Whether `subject` may open the device at `path` by each of its paths, which come from
    /// `clients`. The error is the first address that may not open it, if the address is known.
    fn check(
        &self,
        subject: &Subject,
        clients: &[Option<Address>],
        path: &CStr,
        mode: AccessMode,
    ) -> Result<(), Option<Address>> {
        if clients.is_empty() {
            return Err(None);
        }
        for &client in clients {
            let query = Query {
                subject: subject.from(client),
                device: path.to_bytes(),
                mode,
            };
            if !export_policy::allows(&self.text, &query) {
                return Err(client);
            }
        }
        Ok(())
    }
}

/// The policy that is being written, if any.
struct Writing {
    /// The number of the next policy.
    next: u32,
    draft: Option<Draft>,
}

/// The first part of a policy that is being written.
struct Draft {
    /// The open file by which the policy is written.
    file: OpenFile,
    /// The offset in the file at which the policy goes on.
    offset: u64,
    /// The length of the policy in bytes.
    len: usize,
    text: KVVec<u8>,
}

impl ExportPolicy {
    /// No policy; if one is `required` it cannot be cleared later. Sleeps.
    pub(crate) fn new(required: bool) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                current: RcuArc::empty(),
                required,
                writing <- new_mutex!(
                    Writing {
                        next: 1,
                        draft: None,
                    },
                    "ExportPolicy::writing"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether there is a policy.
    pub(crate) fn is_loaded(&self) -> bool {
        !self.current.is_none()
    }

    /// Whether clients may be served.
    pub(crate) fn may_serve(&self) -> bool {
        !self.required || self.is_loaded()
    }

    /// `EACCES`, which is logged, if no rule is about a client that comes from `client`: the client
    /// gets no session, and no memory. Any context.
    pub(crate) fn admits(&self, client: Option<Address>) -> Result {
        let Some(policy) = self.current.get() else {
            return Ok(());
        };
        if export_policy::admits(&policy.text, client) {
            return Ok(());
        }
        pr_warn_ratelimited!(
            "a client from {} gets no session: no rule of the export policy matches its address\n",
            shown(client).as_str()
        );
        Err(EACCES)
    }

    /// `EACCES`, which is logged, if no rule is about `subject` on a path from `client`: the
    /// path gets no memory, since the session can open nothing. Any context.
    pub(crate) fn admits_session(&self, subject: &Subject, client: Option<Address>) -> Result {
        let Some(policy) = self.current.get() else {
            return Ok(());
        };
        if export_policy::is_about(&policy.text, &subject.from(client)) {
            return Ok(());
        }
        if subject.is_first_refusal(policy.number) {
            pr_warn_ratelimited!(
                "session {:?} from {} ({}): the export policy refuses the session, as no rule \
                 matches it\n",
                subject.name.as_cstr(),
                shown(client).as_str(),
                subject.identity().as_str()
            );
        }
        Err(EACCES)
    }

    /// Whether `subject` may open the device at `path`, as [`Self::check`] says; nothing is logged,
    /// since no client has asked. Any context.
    pub(crate) fn allows(
        &self,
        subject: &Subject,
        clients: &[Option<Address>],
        path: &CStr,
        mode: AccessMode,
    ) -> bool {
        self.current
            .get()
            .is_none_or(|policy| policy.check(subject, clients, path, mode).is_ok())
    }

    /// `EACCES` unless `subject` may open the device at `path` by each of its paths, which come
    /// from `clients`. A refusal is logged, once per session and policy.
    pub(crate) fn check(
        &self,
        subject: &Subject,
        clients: &[Option<Address>],
        path: &CStr,
        mode: AccessMode,
    ) -> Result {
        let Some(policy) = self.current.get() else {
            return Ok(());
        };
        let Err(refused) = policy.check(subject, clients, path, mode) else {
            return Ok(());
        };
        if subject.is_first_refusal(policy.number) {
            pr_warn_ratelimited!(
                "session {:?} from {} ({}): the export policy refuses device {:?} ({}); further \
                 refusals of this session are not logged\n",
                subject.name.as_cstr(),
                shown(refused).as_str(),
                subject.identity().as_str(),
                path,
                mode.as_str()
            );
        }
        Err(EACCES)
    }

    /// Shows the policy in the form in which it is written; nothing if there is no policy.
    pub(crate) fn read(&self, offset: u64, out: &mut SysfsOutput<'_>) -> Result {
        let Some(policy) = self.current.get() else {
            return Ok(());
        };
        let start = Text::<32>::from_fn(|out| {
            writeln!(out, "{} {}", Start::POLICY, policy.text.len()) //
        });
        let mut skip = usize::try_from(offset)?;
        for part in [start.as_bytes(), &policy.text] {
            match part.get(skip..) {
                Some(rest) => {
                    out.write_bytes(rest);
                    skip = 0;
                }
                // `skip` is longer than the part.
                None => skip = skip.wrapping_sub(part.len()),
            }
        }
        Ok(())
    }

    /// Takes a piece of a policy that is written to the file. Sleeps.
    pub(crate) fn write(&self, file: OpenFile, offset: u64, bytes: &[u8]) -> Result {
        let mut writing = self.writing.lock();
        // Any error from here on ends the draft.
        let draft = writing.draft.take();
        let draft = match (offset, draft) {
            (0, _) => match Start::parse(bytes) {
                Ok(Start::Clear) => return self.clear(),
                Ok(Start::Policy { len, text }) => {
                    let mut draft = Draft {
                        file,
                        offset: 0,
                        len,
                        text: KVVec::with_capacity(len, GFP_KERNEL)?,
                    };
                    draft.append(bytes.len(), text)?;
                    draft
                }
                Err(refused) => {
                    pr_err_ratelimited!("export_policy: {}\n", refused.message().as_str());
                    return Err(from_errno(refused.errno()));
                }
            },
            (_, Some(mut draft)) if draft.file == file && draft.offset == offset => {
                draft.append(bytes.len(), bytes)?;
                draft
            }
            _ => {
                pr_err_ratelimited!(
                    "export_policy: the written bytes do not continue a policy: write the whole \
                     policy again\n"
                );
                return Err(EINVAL);
            }
        };
        if draft.text.len() < draft.len {
            writing.draft = Some(draft);
            return Ok(());
        }
        let rules = export_policy::check(&draft.text)
            .inspect_err(|refused| {
                pr_err_ratelimited!("export_policy: {}\n", refused.message().as_str());
            })
            .map_err(|refused| from_errno(refused.errno()))?;
        let number = writing.next;
        let next = number.checked_add(1).ok_or(EOVERFLOW)?;
        let policy = Policy {
            number,
            text: draft.text,
        };
        self.current.replace(Some(Arc::new(policy, GFP_KERNEL)?));
        writing.next = next;
        pr_info_ratelimited!("export policy loaded, {} rules\n", rules);
        Ok(())
    }

    fn clear(&self) -> Result {
        if self.required {
            pr_err_ratelimited!(
                "export_policy: not cleared, as require_export_policy is set: write another policy \
                 in its place\n");
            return Err(EPERM);
        }
        self.current.replace(None);
        pr_info_ratelimited!("export policy cleared\n");
        Ok(())
    }
}

/// The address of a client, for the log.
fn shown(client: Option<Address>) -> Text<PATH_TEXT_LEN> {
    Text::from_fn(|out| match client {
        Some(client) => write!(out, "{client}"),
        _ => out.write_str("an address that is not certain"),
    })
}

impl Draft {
    /// Appends `text`, which ends a piece of `piece` bytes.
    fn append(&mut self, piece: usize, text: &[u8]) -> Result {
        let left = self.len.checked_sub(self.text.len()).ok_or(EINVAL)?;
        if let Some(excess @ 1..) = text.len().checked_sub(left) {
            pr_err_ratelimited!(
                "export_policy: the policy has {} bytes more than the first line says\n",
                excess
            );
            return Err(EINVAL);
        }
        self.text.extend_from_slice(text, GFP_KERNEL)?;
        let piece = u64::try_from(piece)?;
        self.offset = self.offset.checked_add(piece).ok_or(EFBIG)?;
        Ok(())
    }
}
