// SPDX-License-Identifier: GPL-2.0

//! The histograms of a device in sysfs.

use std::path::PathBuf;

use proto::latency::Histogram;
use proto::latency::Kind as RequestKind;
use proto::latency::CLIENT_STAGES;
use proto::latency::SERVER_STAGES;

use crate::model::Bucket;
use crate::model::ClientDevice;
use crate::model::DeviceLatency;
use crate::model::Export;
use crate::model::KindLatency;
use crate::model::ServerDevice;
use crate::model::Side;
use crate::model::StageLatency;
use crate::sysfs::file_text;
use crate::Error;
use crate::Kind;
use crate::Result;

/// A device whose requests can be timed.
#[derive(Clone, Debug)]
pub struct Source {
    /// The kernel's name.
    pub name: String,
    /// This machine's end.
    pub side: Side,
    /// The session.
    pub session: String,
    /// The disk's path at the server, as it was mapped.
    pub device_path: String,
    /// The folder with the histograms.
    pub folder: PathBuf,
}

/// The histograms of a device: by kind of request, then by stage.
pub(crate) type Look = Vec<Vec<Histogram>>;

impl Source {
    /// The source of a device that this machine has mapped.
    pub fn of_client(device: &ClientDevice) -> Self {
        Self {
            name: device.name.clone(),
            side: Side::Client,
            session: device.session.clone(),
            device_path: device.device_path.clone(),
            folder: device.folder.join("latency"),
        }
    }

    /// The source of a device that a client has mapped.
    pub fn of_export(device: &ServerDevice, export: &Export) -> Self {
        Self {
            name: device.name.clone(),
            side: Side::Server,
            session: export.session.clone(),
            device_path: export.device_path.clone(),
            folder: export.folder.join("latency"),
        }
    }

    /// Whether the module can time requests: the C module cannot.
    pub fn is_there(&self) -> bool {
        self.folder.is_dir()
    }

    fn stages(&self) -> &'static [&'static str] {
        match self.side {
            Side::Client => &CLIENT_STAGES,
            Side::Server => &SERVER_STAGES,
        }
    }

    /// Reads the histograms; `None` if the device is gone.
    pub(super) fn look(&self) -> Result<Option<Look>> {
        let mut look = Look::new();
        for kind in RequestKind::ALL {
            let mut stages = Vec::new();
            for stage in self.stages() {
                let file = self.folder.join(format!("{}_{stage}", kind.name()));
                let Some(text) = file_text(&file)? else {
                    return Ok(None);
                };
                // `file_text` takes the newline at the end off.
                let histogram = Histogram::parse(format!("{text}\n").as_bytes());
                let histogram = histogram.ok_or_else(|| {
                    let why = "rnbdctl does not know this form of a histogram";
                    Error::new(Kind::Failed, format!("reading {}", file.display()), why)
                })?;
                stages.push(histogram);
            }
            look.push(stages);
        }
        Ok(Some(look))
    }

    /// The requests between two reads.
    pub(super) fn between(&self, before: &Look, after: &Look) -> DeviceLatency {
        let kinds = RequestKind::ALL.iter().zip(before.iter().zip(after));
        let kinds = kinds.map(|(kind, (before, after))| KindLatency {
            kind: kind.name().to_owned(),
            network_mean_ns: None,
            stages: self
                .stages()
                .iter()
                .zip(before.iter().zip(after))
                .map(|(stage, (before, after))| stage_of(stage, &after.since(before)))
                .collect(),
        });
        DeviceLatency {
            name: self.name.clone(),
            side: self.side,
            session: self.session.clone(),
            device_path: self.device_path.clone(),
            kinds: kinds.collect(),
        }
    }
}

fn stage_of(stage: &str, histogram: &Histogram) -> StageLatency {
    StageLatency {
        stage: stage.to_owned(),
        requests: histogram.requests(),
        mean_ns: histogram.mean_ns(),
        p50_ns: histogram.percentile_ns(5000),
        p90_ns: histogram.percentile_ns(9000),
        p99_ns: histogram.percentile_ns(9900),
        p999_ns: histogram.percentile_ns(9990),
        max_ns: histogram.percentile_ns(10_000),
        buckets: histogram
            .buckets()
            .map(|(least_ns, requests)| Bucket { least_ns, requests })
            .collect(),
    }
}
