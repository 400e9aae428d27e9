// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl exporter`: metrics for Prometheus.

use std::net::SocketAddr;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::config::write_whole;
use crate::cli::Context;
use crate::exporter::metrics::Snapshot;
use crate::exporter::render;
use crate::exporter::server;
use crate::exporter::text;
use crate::Error;
use crate::Result;
use crate::System;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Serve http://ADDRESS:PORT/metrics until a signal comes; [::]:PORT serves all addresses
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9871")]
    pub listen: SocketAddr,

    /// Write the metrics to a file instead, for the node exporter's textfile collector
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub textfile: Option<PathBuf>,

    /// With --textfile: write the file again after each interval, in seconds
    #[arg(long, value_name = "SECONDS", requires = "textfile")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub interval: Option<u32>,
}

/// Serves the metrics, or writes them to a file.
pub fn run(args: &Args, context: &Context) -> Result {
    match &args.textfile {
        None => listen(args.listen, &context.system),
        Some(file) => match args.interval {
            None => write(file, &context.system),
            Some(seconds) => {
                write_often(file, Duration::from_secs(seconds.into()), &context.system)
            }
        },
    }
}

fn metrics(system: &System) -> Result<String> {
    render(Snapshot::take(system)?)
}

fn signals() -> Result<Signals> {
    Signals::new([SIGINT, SIGTERM]).map_err(|error| Error::io("waiting for signals", &error))
}

fn listen(address: SocketAddr, system: &System) -> Result {
    let what = format!("listening on {address}");
    let listener = TcpListener::bind(address).map_err(|error| Error::io(&what, &error))?;
    let bound = listener
        .local_addr()
        .map_err(|error| Error::io(&what, &error))?;
    let mut signals = signals()?;
    eprintln!("rnbdctl: serving http://{bound}/metrics");
    if server::is_public(&bound) {
        eprintln!(
            "rnbdctl: every machine in reach can read the names of sessions, devices and addresses"
        );
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        signals.forever().next();
        // Sending fails only if the program has ended.
        let _ = stop.send(());
    });
    let system = system.clone();
    let source = Arc::new(move || metrics(&system).map_err(|error| error.to_string()));
    let stopped = async {
        // A signal ends the program, and so does the end of that thread.
        let _ = stopped.await;
    };
    server::serve(listener, source, stopped).map_err(|error| Error::io(&what, &error))
}

fn write(file: &std::path::Path, system: &System) -> Result {
    let text = text::from_openmetrics(&metrics(system)?);
    write_whole(file, &text)
        .map_err(|error| Error::io(format!("writing {}", file.display()), &error))
}

fn write_often(file: &std::path::Path, interval: Duration, system: &System) -> Result {
    // The first failure ends the program at once.
    write(file, system)?;
    let mut signals = signals()?;
    let (stop, stopped) = mpsc::channel();
    thread::spawn(move || {
        signals.forever().next();
        // Sending fails only if the program has ended.
        let _ = stop.send(());
    });
    let mut failed = None;
    while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
        match write(file, system) {
            Ok(()) => failed = None,
            // A repeated failure, such as a full disk, is printed once.
            Err(error) if failed.as_ref() == Some(&error) => (),
            Err(error) => {
                error.print();
                failed = Some(error);
            }
        }
    }
    Ok(())
}
