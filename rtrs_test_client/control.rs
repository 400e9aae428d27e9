// SPDX-License-Identifier: GPL-2.0

//! The files by which a test is run: `run`, `stop` and `result` (Documentation/ABI/testing/
//! sysfs-class-rtrs-test).

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    module::ModuleReference,
    prelude::*,
    sysfs::{
        Attribute,
        BinaryAttribute, //
    },
    workqueue::QueueHandle, //
};
use proto::fabric::options::Options;

use crate::{
    report::Report,
    run, //
};

/// The files of the folder, except `result`.
pub(crate) const FILES: &[Attribute<Test>] = &[
    Attribute::new(
        c"run",
        0o200,
        None,
        Some(|test, _, text| Test::start(test, text)),
    ),
    Attribute::new(
        c"stop",
        0o200,
        None,
        Some(|test, _, _| {
            test.stop();
            Ok(())
        }),
    ),
];

/// The report of the test that runs, or of the last test.
pub(crate) static RESULT: BinaryAttribute<Test> = BinaryAttribute::new(
    c"result",
    |test, at, out| {
        let report = test.state.lock().report.clone();
        if let Some(report) = report {
            report.show(at, out);
        }
        Ok(())
    },
    |_, _, _, _| Err(EPERM),
);

struct State {
    /// The report of the test that runs, or of the last test.
    report: Option<Arc<Report>>,
    is_running: bool,
}

/// The test, of which at most one runs at a time.
#[pin_data]
pub(crate) struct Test {
    #[pin]
    state: Mutex<State>,
    queue: QueueHandle,
    module: fn() -> Result<ModuleReference>,
}

impl Test {
    /// Makes an object for which no test runs. Tests run on `queue`; `module` keeps this module
    /// loaded.
    pub(crate) fn new(
        queue: QueueHandle,
        module: fn() -> Result<ModuleReference>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state <- new_mutex!(
                    State { report: None, is_running: false },
                    "rtrs_test_client::Test"
                ),
                queue,
                module,
            }),
            GFP_KERNEL,
        )
    }

    /// Has the test that runs end soon. Sleeps, but does not wait for the end.
    pub(crate) fn stop(&self) {
        if let Some(report) = &self.state.lock().report {
            report.stop();
        }
    }

    /// Begins the test that `text` describes. `EINVAL` for a mistake in the text, which the log
    /// names. `EBUSY` while a test runs. Sleeps.
    fn start(this: &Arc<Self>, text: &[u8]) -> Result {
        let options = Options::parse(text).map_err(|error| {
            pr_err!("run: {}\n", error.as_str());
            EINVAL
        })?;
        let report = Report::new()?;
        let mut state = this.state.lock();
        if state.is_running {
            return Err(EBUSY);
        }
        let (test, own) = (this.clone(), report.clone());
        this.queue.spawn(move || {
            run::run(&own, &options, test.module);
            test.state.lock().is_running = false;
        })?;
        state.report = Some(report);
        state.is_running = true;
        Ok(())
    }
}
