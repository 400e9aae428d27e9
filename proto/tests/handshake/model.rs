// SPDX-License-Identifier: GPL-2.0

//! A model of several handshakes on a network that belongs to an attacker.
//!
//! The ends are the state machines of [`proto::handshake`], with real codes. The attacker reads all
//! messages, and decides what arrives: nothing, a message of another handshake or direction, the
//! same message again, or a message made of parts of other messages. The attacker also has a key,
//! as another client. The attacker cannot make a code of a key that it does not have.
//!
//! The attacker can send each sent message again at any time, so the attacker's knowledge follows
//! from the states of the ends.

use proto::{
    addr::Address,
    auth_keys::{Key, Secret},
    client_id::ClientId,
    handshake::{ClientHandshake, PathKey, Refusal, ServerHandshake},
    rtrs::{
        auth::{AuthReq, AuthRsp, ConnectionCode},
        transcript::Said,
        Code, ConnReq, Nonce,
    },
};
use stateright::{Model, Property};

use super::mac::HostMac;

/// The name that the server has given the honest client.
const HONEST: &[u8] = b"honest";
/// Another name that has the same key by mistake.
const TWIN: &[u8] = b"twin";
/// The attacker's name as a client of the server.
const ATTACKER: &[u8] = b"attacker";

/// The attacker's random number.
const ATTACKERS_NONCE: Nonce = [0xee; 32];
/// The attacker's queue pair.
const ATTACKERS_QUEUE_PAIR: u32 = 99;
/// The queue pair of the honest client's connection 0, the same in all handshakes.
const QUEUE_PAIR: u32 = 10;
/// A feature bit that the attacker flips.
const FEATURE: u32 = 1 << 9;

/// The number that all keys have.
const NUMBER: u32 = 7;

pub const SERVER_AGREES: &str = "a server that knows its client has heard just that client";
pub const CLIENT_AGREES: &str = "a client that knows its server has heard just that server";
pub const CONNECTIONS: &str = "a further connection is the client's";
pub const WORKS: &str = "both ends get what they want";

pub fn id(name: &[u8]) -> ClientId {
    ClientId::new(name).unwrap()
}

/// The key of a client.
pub fn key(client: &ClientId) -> Key {
    let byte = if client.as_bytes() == ATTACKER { 2 } else { 1 };
    Key {
        number: NUMBER,
        secret: Secret::new([byte; Secret::LEN]),
    }
}

fn address(server: u8) -> Address {
    Address::V4([192, 0, 2, server])
}

/// The honest client's request for connection 0. It is the same in all handshakes, as after 65536
/// attempts to connect, so that only random numbers tell the handshakes apart.
fn request() -> ConnReq {
    ConnReq {
        cid: 0,
        cid_num: 3,
        recon_cnt: 1,
        sess_uuid: [3; 16],
        paths_uuid: [4; 16],
        first_conn: true,
        features: 1 << 5,
        given_up: 0,
    }
}

/// A handshake of the honest client, which asks the server at address 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    number: u8,
    /// Everything that the client has sent and received before its proof.
    said: Option<Said>,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Asked,
    Proving(ClientHandshake),
    /// With the proof that the client sent, and the key of the path.
    Connected(AuthReq, PathKey),
    /// With the proof that the client sent.
    Failed(AuthReq),
}

impl Run {
    fn nonce(&self) -> Nonce {
        [0xc0 | self.number; 32]
    }

    /// The queue pair of a further connection.
    fn queue_pair(&self, cid: u16) -> u32 {
        20 + u32::from(self.number) * 10 + u32::from(cid)
    }

    /// The client's proof, once it was sent.
    fn message(&self) -> Option<AuthReq> {
        match &self.stage {
            Stage::Proving(handshake) => AuthReq::parse(&handshake.request()).ok(),
            Stage::Connected(message, _) | Stage::Failed(message) => Some(*message),
            _ => None,
        }
    }

    /// The codes of the client's further connections, once they were sent.
    fn codes(&self, mac: &HostMac) -> Vec<ConnectionCode> {
        match &self.stage {
            Stage::Connected(_, key) => [1, 2]
                .iter()
                .map(|&cid| key.connection(mac, cid, self.queue_pair(cid)))
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// A path of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    said: Said,
    handshake: ServerHandshake,
    /// The proof that the server accepted, and the code of its response.
    taken: Option<(AuthReq, Code)>,
    /// The queue pairs of connections 1, 2 and so on.
    further: Vec<u32>,
}

/// The state of all ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    runs: Vec<Run>,
    paths: Vec<Path>,
}

/// The steps that the attacker lets happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The server with this address gets a request with this queue pair and these features.
    Ask {
        server: u8,
        queue_pair: u32,
        features: u32,
    },
    /// A run gets the response to its request.
    Answer { run: usize, nonce: Nonce, used: u32 },
    /// A path gets a proof.
    Prove { path: usize, message: AuthReq },
    /// A run gets the response to its proof.
    Respond { run: usize, code: Code },
    /// A path gets a request for its next connection.
    Connect {
        path: usize,
        queue_pair: u32,
        code: ConnectionCode,
    },
}

/// The model to check.
#[derive(Clone, Debug)]
pub struct Network {
    /// The codes, perhaps with parts left out.
    pub mac: HostMac,
    pub runs: u8,
    pub paths: usize,
}

impl Network {
    /// All codes that were sent.
    fn codes(&self, state: &State) -> Vec<Code> {
        let of_runs = state.runs.iter().filter_map(Run::message);
        let of_paths = state.paths.iter().filter_map(|path| path.taken);
        of_runs
            .map(|message| message.code)
            .chain(of_paths.map(|(_, code)| code))
            .collect()
    }

    /// The proofs that the attacker can send to a path.
    fn proofs(&self, state: &State, path: &Path) -> Vec<AuthReq> {
        let mut nonces = vec![ATTACKERS_NONCE];
        nonces.extend(state.runs.iter().filter_map(Run::message).map(|m| m.nonce));
        let own = ClientHandshake::new(
            &self.mac,
            path.said,
            id(ATTACKER),
            key(&id(ATTACKER)),
            ATTACKERS_NONCE,
        );
        let own = AuthReq::parse(&own.request()).unwrap();
        let mut codes = self.codes(state);
        codes.push(own.code);
        let mut proofs = vec![own];
        for client in [HONEST, TWIN] {
            for &nonce in &nonces {
                proofs.extend(codes.iter().map(|&code| AuthReq {
                    key: NUMBER,
                    nonce,
                    client: id(client),
                    code,
                }));
            }
        }
        proofs
    }

    /// The run whose proof a path has accepted. `Ok(None)` if the path has no proof or knows its
    /// client as the attacker; `Err` if no run has made the proof.
    fn run_of<'a>(state: &'a State, path: &Path) -> Result<Option<&'a Run>, ()> {
        let (Some(client), Some((taken, _))) = (path.handshake.client(), &path.taken) else {
            return Ok(None);
        };
        if client.as_bytes() == ATTACKER {
            return Ok(None);
        }
        let run = state.runs.iter().find(|run| {
            run.said == Some(path.said) && run.message() == Some(*taken) && taken.client == *client
        });
        run.map(Some).ok_or(())
    }

    fn server_agrees(&self, state: &State) -> bool {
        let mut seen = Vec::new();
        state
            .paths
            .iter()
            .all(|path| match Self::run_of(state, path) {
                Ok(Some(run)) => {
                    let is_new = !seen.contains(&run.number);
                    seen.push(run.number);
                    is_new
                }
                Ok(None) => true,
                Err(()) => false,
            })
    }

    fn client_agrees(&self, state: &State) -> bool {
        let mut seen = Vec::new();
        state.runs.iter().all(|run| {
            let Stage::Connected(message, _) = &run.stage else {
                return true;
            };
            let path = state.paths.iter().position(|path| {
                Some(path.said) == run.said
                    && path.taken.is_some_and(|(taken, _)| taken == *message)
            });
            let is_new = path.is_some_and(|path| !seen.contains(&path));
            seen.extend(path);
            is_new
        })
    }

    fn connections(&self, state: &State) -> bool {
        state
            .paths
            .iter()
            .all(|path| match Self::run_of(state, path) {
                Ok(Some(run)) => {
                    let cids = 1u16..;
                    let mut further = path.further.iter().zip(cids);
                    let is_connected = matches!(run.stage, Stage::Connected(..));
                    further
                        .all(|(&queue_pair, cid)| is_connected && queue_pair == run.queue_pair(cid))
                }
                Ok(None) => true,
                Err(()) => path.further.is_empty(),
            })
    }
}

impl Model for Network {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            runs: (0..self.runs)
                .map(|number| Run {
                    number,
                    said: None,
                    stage: Stage::Asked,
                })
                .collect(),
            paths: Vec::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.paths.len() < self.paths {
            // The right request, and requests in which one value is wrong.
            let right = (1, QUEUE_PAIR, request().features);
            let (other_queue_pair, other_features) =
                (ATTACKERS_QUEUE_PAIR, request().features | FEATURE);
            for (server, queue_pair, features) in [
                right,
                (2, right.1, right.2),
                (right.0, other_queue_pair, right.2),
                (right.0, right.1, other_features),
            ] {
                actions.push(Action::Ask {
                    server,
                    queue_pair,
                    features,
                });
            }
        }
        let codes = self.codes(state);
        for (run, state_of) in state.runs.iter().enumerate() {
            match &state_of.stage {
                Stage::Asked => {
                    let nonces = state.paths.iter().map(|path| path.said.nonce);
                    for nonce in nonces.chain([ATTACKERS_NONCE]) {
                        for used in [request().features, request().features | FEATURE] {
                            actions.push(Action::Answer { run, nonce, used });
                        }
                    }
                }
                Stage::Proving(_) => {
                    actions.extend(codes.iter().map(|&code| Action::Respond { run, code }))
                }
                _ => {}
            }
        }
        for (path, state_of) in state.paths.iter().enumerate() {
            if matches!(state_of.handshake, ServerHandshake::Waiting(_)) {
                let proofs = self.proofs(state, state_of);
                actions.extend(
                    proofs
                        .into_iter()
                        .map(|message| Action::Prove { path, message }),
                );
            }
            if state_of.handshake.client().is_some() && state_of.further.len() < 2 {
                for run in &state.runs {
                    for code in run.codes(&self.mac) {
                        for queue_pair in
                            [run.queue_pair(1), run.queue_pair(2), ATTACKERS_QUEUE_PAIR]
                        {
                            actions.push(Action::Connect {
                                path,
                                queue_pair,
                                code,
                            });
                        }
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask {
                server,
                queue_pair,
                features,
            } => {
                let request = ConnReq {
                    features,
                    ..request()
                };
                let nonce = [0x50 | state.paths.len() as u8; 32];
                let used = request.features & (1 << 5);
                let said = Said::new(request, used, nonce, queue_pair, &address(server));
                state.paths.push(Path {
                    said,
                    handshake: ServerHandshake::Waiting(said),
                    taken: None,
                    further: Vec::new(),
                });
            }
            Action::Answer { run, nonce, used } => {
                let run = &mut state.runs[run];
                let said = Said::new(request(), used, nonce, QUEUE_PAIR, &address(1));
                let client = id(HONEST);
                let handshake =
                    ClientHandshake::new(&self.mac, said, client, key(&client), run.nonce());
                run.said = Some(said);
                run.stage = Stage::Proving(handshake);
            }
            Action::Prove { path, message } => {
                let path = &mut state.paths[path];
                let (response, result) =
                    path.handshake
                        .request(&self.mac, &message.to_bytes(), |client, number| {
                            assert_eq!(number, NUMBER);
                            Ok::<_, Refusal>(key(client))
                        });
                if result.is_ok() {
                    let Ok(AuthRsp::Accepted(code)) = AuthRsp::parse(&response) else {
                        panic!("the response does not say what the server does");
                    };
                    path.taken = Some((message, code));
                }
            }
            Action::Respond { run, code } => {
                let message = state.runs[run].message()?;
                let run = &mut state.runs[run];
                let Stage::Proving(handshake) = run.stage.clone() else {
                    return None;
                };
                let response = AuthRsp::Accepted(code).to_bytes();
                run.stage = match handshake.response(&self.mac, &response) {
                    Ok(key) => Stage::Connected(message, key),
                    Err(_) => Stage::Failed(message),
                };
            }
            Action::Connect {
                path,
                queue_pair,
                code,
            } => {
                let path = &mut state.paths[path];
                let cid = path.further.len() as u16 + 1;
                if !path.handshake.admits(&self.mac, cid, queue_pair, &code) {
                    return None;
                }
                path.further.push(queue_pair);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SERVER_AGREES, |network: &Self, state| {
                network.server_agrees(state)
            }),
            Property::always(CLIENT_AGREES, |network: &Self, state| {
                network.client_agrees(state)
            }),
            Property::always(CONNECTIONS, |network: &Self, state| {
                network.connections(state)
            }),
            Property::sometimes(WORKS, |network: &Self, state: &State| {
                let all_runs = state
                    .runs
                    .iter()
                    .all(|run| matches!(run.stage, Stage::Connected(..)));
                let all_paths = state.paths.len() == network.paths
                    && state.paths.iter().all(|path| path.further.len() == 2);
                all_runs && all_paths
            }),
        ]
    }
}
