// SPDX-License-Identifier: GPL-2.0

//! The raw part: carries out a client's commands.

use kernel_ext::{
    prelude::*,
    rdma::RemoteMemory, //
};
use proto::fabric::{
    command::{
        Action,
        Answer,
        Command,
        ALL_RIGHT,
        COMMAND_LEN, //
    },
    fill::first_difference,
    MESSAGE_SIZE,
    RAW_SIZE, //
};
use rtrs_test::{
    Endpoint,
    Received, //
};

/// How long a client may be silent, in ms.
const IDLE_MS: u32 = 60_000;

/// Serves a connection until it is over. Sleeps.
pub(crate) fn serve(endpoint: &mut Endpoint) -> Result {
    endpoint.accept()?;
    endpoint.register()?;
    let mut message = KVVec::from_elem(0u8, MESSAGE_SIZE as usize, GFP_KERNEL)?;
    loop {
        let received = endpoint.receive(IDLE_MS)?;
        let mut answer = Answer {
            len: received.len,
            imm: received.imm,
            wrong: ALL_RIGHT,
            errno: 0,
        };
        let bytes = take(endpoint, &received, &mut message)?;
        let command = Command::parse(bytes);
        if command.is_some_and(|command| command.action == Action::Starve) {
            endpoint.send(&answer.to_bytes(), None)?;
            // The client's message that finds no receive ends the connection.
            return endpoint.receive_until_over(IDLE_MS);
        }
        endpoint.post_again(received)?;
        if let Some(command) = command {
            match carry_out(endpoint, &command, bytes) {
                Ok(wrong) => answer.wrong = wrong,
                Err(error) if endpoint.peer().is_over() => return Err(error),
                Err(error) => answer.errno = error.to_errno(),
            }
        }
        endpoint.send(&answer.to_bytes(), None)?;
    }
}

/// The bytes of a message. None if the client wrote to memory.
fn take<'a>(endpoint: &Endpoint, received: &Received, message: &'a mut [u8]) -> Result<&'a [u8]> {
    let len = match received.is_write {
        true => 0,
        false => received.len as usize,
    };
    let bytes = message.get_mut(..len).ok_or(EMSGSIZE)?;
    endpoint.copy_out(received, bytes)?;
    Ok(bytes)
}

/// Carries out a command. Returns the place of the first wrong byte that it finds. Sleeps.
fn carry_out(endpoint: &mut Endpoint, command: &Command, message: &[u8]) -> Result<u32> {
    let found = |place: Option<usize>| place.map_or(ALL_RIGHT, |place| place as u32);
    let to = RemoteMemory {
        address: command.address,
        rkey: command.rkey,
    };
    let (len, seed) = (command.len, command.seed);
    let whole = RAW_SIZE as usize;
    match command.action {
        Action::Message => {
            let rest = message.get(COMMAND_LEN..).ok_or(EINVAL)?;
            if rest.len() != len as usize {
                return Err(EMSGSIZE);
            }
            return Ok(found(first_difference(seed, 0, rest)));
        }
        Action::Check => {
            let place = endpoint.memory().first_difference(seed, len as usize)?;
            return Ok(found(place));
        }
        Action::Write => endpoint.write(to, len, seed, whole, None)?,
        Action::WriteImm => endpoint.write(to, len, seed, whole, Some(seed as u32))?,
        Action::WriteInvalidate => {
            endpoint.write(to, len, seed, whole, None)?;
            endpoint.send_invalidate(command.rkey)?;
        }
        Action::EndKey => endpoint.end_key()?,
        // The answer was sent before.
        Action::Starve => {}
    }
    Ok(ALL_RIGHT)
}
