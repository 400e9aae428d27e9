// SPDX-License-Identifier: GPL-2.0

//! `rnbd-csi`: a driver for orchestrators of containers (Kubernetes, Nomad), by the Container
//! Storage Interface.
//!
//! - [`wire`], [`messages`]: protobuf, and the messages of CSI.
//! - [`grpc`]: calls over a socket.
//! - [`driver`]: which call is for which service.
//! - [`node`]: the node service, with [`device`], [`filesystem`], [`mounts`].
//! - [`controller`]: the controller service, with [`store`].
//! - [`volume`], [`capability`]: what requests say about volumes.
//! - [`busy`], [`fail`], [`lock`], [`programs`]: what several of them need.
//!
//! Each call can be made again, whatever the call before has done of it. For that the program keeps
//! nothing in its memory from one call to the next: each call asks the kernel what is mapped and
//! mounted, and the folder or LVM which volumes there are. Only of mirrored volumes the program
//! keeps files: records of their legs in `/var/lib/rnbd`, and notes in `/run/rnbd`. Locks between
//! drivers are in `/run/rnbd`, too.

#![forbid(unsafe_code)]

mod busy;
mod capability;
mod cli;
mod controller;
mod device;
mod driver;
mod fail;
mod filesystem;
mod grpc;
mod lock;
mod messages;
mod mounts;
mod node;
mod programs;
mod store;
mod volume;
mod wire;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use rnbdctl::System;

use cli::Args;
use cli::Call;
use cli::Command;
use cli::Serve;
use controller::Controller;
use controller::Fixed;
use controller::Mirrored;
use controller::Options;
use controller::Server;
use driver::Driver;
use grpc::client;
use grpc::client::Ended;
use node::Node;
use store::Files;
use store::Lvm;
use store::Store;

/// The exit code of wrong usage.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Some(Command::Call(call)) => make(call),
        None => serve(&args.serve),
    };
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("rnbd-csi: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until told to end.
fn serve(args: &Serve) -> Result<ExitCode, String> {
    let system = System::new(None, None);
    let controller = controller(args, &system)?;
    let node = args.node_id.as_ref().filter(|_| args.node);
    let node = node.map(|id| Node::new(system, id));
    if node.is_none() && controller.is_none() {
        eprintln!("rnbd-csi: give a service: --node, --controller, --server, --mirrors");
        return Ok(ExitCode::from(USAGE));
    }
    let shown = args.endpoint.display();
    let listener =
        grpc::server::listen(&args.endpoint).map_err(|error| format!("{shown}: {error}"))?;
    // Behind `listen`, which allows no second thread, and no second driver.
    if let Some(Controller::Server(server)) = &controller {
        server.begin().map_err(|status| status.message)?;
    }
    if let Some(node) = &node {
        node.tend().map_err(|status| status.message)?;
    }
    let driver = Driver {
        name: args.name.clone(),
        node,
        controller,
    };
    eprintln!("rnbd-csi: {} is listening at {shown}", args.name);
    grpc::server::serve(listener, Arc::new(driver)).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn controller(args: &Serve, system: &System) -> Result<Option<Controller>, String> {
    let system = system.clone();
    if let Some(id) = args.node_id.as_ref().filter(|_| args.controller) {
        return Ok(Some(Controller::Fixed(Fixed::new(system, id))));
    }
    if args.mirrors {
        let mirrored = Mirrored::new(args.server_socket.clone());
        return Ok(Some(Controller::Mirrored(mirrored)));
    }
    let Some(server) = args.server_name.clone().filter(|_| args.server) else {
        return Ok(None);
    };
    let store: Box<dyn Store> = match (&args.folder, &args.volume_group) {
        (Some(folder), _) => Box::new(Files::open(folder).map_err(|status| status.message)?),
        (None, Some(group)) => {
            Box::new(Lvm::open(group, &system).map_err(|status| status.message)?)
        }
        // The command line has one of them.
        (None, None) => return Ok(None),
    };
    let options = Options {
        server,
        context: args.context(),
    };
    let server = Server::new(system, store, options);
    Ok(Some(Controller::Server(server)))
}

/// Makes a call, and prints how it ended as JSON.
fn make(call: &Call) -> Result<ExitCode, String> {
    let (path, request) = match driver::request(&call.name, &call.request) {
        Ok(made) => made,
        Err(why) => {
            eprintln!("rnbd-csi: {why}");
            return Ok(ExitCode::from(USAGE));
        }
    };
    let (told, code) = match client::call(&call.endpoint, path, &request)? {
        Ended::Response(bytes) => {
            let response = driver::response(&call.name, &bytes)?;
            let told = serde_json::json!({"code": "OK", "response": response});
            (told, ExitCode::SUCCESS)
        }
        Ended::Failed(code, message) => {
            let told = serde_json::json!({"code": code, "message": message});
            (told, ExitCode::FAILURE)
        }
    };
    println!("{told}");
    Ok(code)
}
