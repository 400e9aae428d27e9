// SPDX-License-Identifier: GPL-2.0

//! All sessions side by side, again and again until everything is there.
//!
//! Each session has a thread: a server that does not respond keeps its thread in the kernel for as
//! long as a connection may take, and no other thread. If the program is told to end, a thread that
//! is in the kernel is left behind; the kernel interrupts the thread's call when the process exits.

use std::sync::mpsc;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::plan::other_sessions;
use super::session::attempt;
use super::session::Goal;
use super::session::Observer;
use super::Change;
use super::Machine;
use crate::config::Config;
use crate::Error;
use crate::Result;

/// How long changes are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Every change is tried once.
    Once,
    /// Changes are tried until everything is there, or this time is over.
    For(Duration),
    /// Changes are tried until everything is there.
    Forever,
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long changes are tried again.
    pub patience: Patience,
    /// Whether devices and paths that are not in the file are removed.
    pub prune: bool,
    /// The wait before the second attempt. It doubles with each attempt that achieves nothing.
    pub first_delay: Duration,
    /// The longest wait between attempts.
    pub longest_delay: Duration,
}

impl Options {
    /// Options with waits that suit servers: 1 to 30 seconds.
    pub fn new(patience: Patience, prune: bool) -> Self {
        Self {
            patience,
            prune,
            first_delay: Duration::from_secs(1),
            longest_delay: Duration::from_secs(30),
        }
    }
}

/// An event of a session.
#[derive(Clone, Debug)]
pub enum Event {
    /// A change is about to be made.
    Doing(Change),
    /// A change was made; holds the device node, if there is one.
    Done(Change, Option<String>),
    /// A change could not be made, for now.
    Failed(Change, Error),
    /// The machine's state could not be read, for now.
    Unreadable(Error),
    /// A change cannot be made, or is left out.
    Remark(String),
    /// This many changes are left; the next attempt is after this time.
    Waiting(usize, Duration),
    /// The session is as the file says (`true`), or is given up.
    Finished(bool),
}

/// A change that was tried, and its result.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The session.
    pub session: String,
    /// The change; `None` if the machine's state could not be read.
    pub change: Option<Change>,
    /// The device node if there is one, or the last error.
    pub result: Result<Option<String>>,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The changes that were tried, in the order of their first attempts.
    pub outcomes: Vec<Outcome>,
    /// The remarks: session and text.
    pub remarks: Vec<(String, String)>,
    /// The signal that ended the run before everything was there.
    pub signal: Option<i32>,
}

impl Summary {
    /// The first change that could not be made.
    pub fn first_failure(&self) -> Option<&Error> {
        self.outcomes
            .iter()
            .find_map(|outcome| outcome.result.as_ref().err())
    }

    fn note(&mut self, session: &str, event: &Event) {
        let (change, result) = match event {
            Event::Done(change, node) => (Some(change), Ok(node.clone())),
            Event::Failed(change, error) => (Some(change), Err(error.clone())),
            Event::Unreadable(error) => (None, Err(error.clone())),
            Event::Remark(text) => {
                let remark = (session.to_owned(), text.clone());
                if !self.remarks.contains(&remark) {
                    self.remarks.push(remark);
                }
                return;
            }
            Event::Finished(true) => {
                // Changes that failed before are not needed any more.
                self.outcomes
                    .retain(|have| have.session != session || have.result.is_ok());
                return;
            }
            _ => return,
        };
        // The failure to read the state is over; it is not a change.
        self.outcomes
            .retain(|have| have.change.is_some() || have.session != session || have.result.is_ok());
        let is_same =
            |have: &&mut Outcome| have.session == session && have.change.as_ref() == change;
        match self.outcomes.iter_mut().find(is_same) {
            Some(have) => have.result = result,
            None => self.outcomes.push(Outcome {
                session: session.to_owned(),
                change: change.cloned(),
                result,
            }),
        }
    }
}

/// Tells threads to end.
#[derive(Debug, Default)]
struct Stop {
    told: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    fn tell(&self) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    fn is_told(&self) -> bool {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time`, or until threads are told to end.
    fn wait(&self, time: Duration) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // The caller asks `is_told` again, whether the lock was poisoned or not.
        drop(self.wake.wait_timeout_while(told, time, |told| !*told));
    }
}

/// A message to the thread that shows the events.
enum Message {
    Event(String, Box<Event>),
    Signal(i32),
}

/// Ends the run; for a thread that waits for signals.
#[derive(Clone)]
pub struct Interrupt(mpsc::Sender<Message>);

impl Interrupt {
    /// Ends the run; `signal` goes into the summary.
    pub fn send(&self, signal: i32) {
        // Sending fails only if the run has ended.
        let _ = self.0.send(Message::Signal(signal));
    }
}

/// Brings the machine to the state in the file; `show` gets each event as it happens.
///
/// `prepare` gets the [`Interrupt`] of the run before the run begins.
pub fn run(
    machine: Arc<dyn Machine>,
    config: &Config,
    options: Options,
    prepare: impl FnOnce(Interrupt),
    mut show: impl FnMut(&str, &Event),
) -> Result<Summary> {
    let state = machine.state()?;
    let others = other_sessions(config, &state);
    let others = others.into_iter().filter(|_| options.prune);
    let mut jobs: Vec<Job> = config.sessions.iter().cloned().map(Job::Is).collect();
    jobs.extend(others.map(Job::Gone));

    let (sender, receiver) = mpsc::channel();
    prepare(Interrupt(sender.clone()));
    let stop = Arc::new(Stop::default());
    let end = match options.patience {
        Patience::Once => Some(Instant::now()),
        Patience::For(time) => Instant::now().checked_add(time),
        Patience::Forever => None,
    };
    let jobs_left = jobs.len();
    for job in jobs {
        let mut worker = Worker {
            machine: Arc::clone(&machine),
            options,
            end,
            stop: Arc::clone(&stop),
            sender: sender.clone(),
            name: job.goal().name().to_owned(),
            is_complete: false,
        };
        let name = job.goal().name().to_owned();
        let work = move || worker.run(&job);
        thread::Builder::new()
            .spawn(work)
            .map_err(|error| Error::io(format!("session {name}: making a thread"), &error))?;
    }
    drop(sender);

    Ok(follow(&receiver, jobs_left, &stop, &mut show))
}

/// Notes and shows the events of the threads, until `left` threads have ended or a signal comes.
fn follow(
    receiver: &mpsc::Receiver<Message>,
    mut left: usize,
    stop: &Stop,
    show: &mut impl FnMut(&str, &Event),
) -> Summary {
    let mut summary = Summary::default();
    while left > 0 {
        match receiver.recv() {
            Ok(Message::Event(session, event)) => {
                summary.note(&session, &event);
                show(&session, &event);
                if matches!(*event, Event::Finished(_)) {
                    left = left.saturating_sub(1);
                }
            }
            Ok(Message::Signal(signal)) => {
                summary.signal = Some(signal);
                stop.tell();
                break;
            }
            // Every thread has sent its last event.
            Err(mpsc::RecvError) => break,
        }
    }
    summary
}

/// The work of a thread.
enum Job {
    Is(crate::config::Session),
    Gone(String),
}

impl Job {
    fn goal(&self) -> Goal<'_> {
        match self {
            Self::Is(session) => Goal::Is(session),
            Self::Gone(name) => Goal::Gone(name),
        }
    }
}

struct Worker {
    machine: Arc<dyn Machine>,
    options: Options,
    end: Option<Instant>,
    stop: Arc<Stop>,
    sender: mpsc::Sender<Message>,
    name: String,
    is_complete: bool,
}

/// The thread reports its end however it ends, so that `follow` does not wait for it.
impl Drop for Worker {
    fn drop(&mut self) {
        self.tell(Event::Finished(self.is_complete));
    }
}

impl Worker {
    fn run(&mut self, job: &Job) {
        let mut delay = self.options.first_delay;
        loop {
            let machine = Arc::clone(&self.machine);
            let result = attempt(&*machine, job.goal(), self.options.prune, self);
            let (done, failed) = match result {
                Ok(attempt) => (attempt.done, attempt.failed),
                Err(error) => {
                    self.tell(Event::Unreadable(error));
                    (0, 1)
                }
            };
            self.is_complete = failed == 0 && !self.stop.is_told();
            if self.is_complete || self.stop.is_told() {
                break;
            }
            if done > 0 {
                delay = self.options.first_delay;
            }
            let left = self
                .end
                .map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            let wait = left.map_or(delay, |left| delay.min(left));
            self.tell(Event::Waiting(failed, wait));
            self.stop.wait(wait);
            if self.stop.is_told() {
                break;
            }
            delay = delay.saturating_mul(2).min(self.options.longest_delay);
        }
    }

    fn tell(&self, event: Event) {
        // Sending fails only if the program is about to end.
        let _ = self
            .sender
            .send(Message::Event(self.name.clone(), Box::new(event)));
    }
}

impl Observer for Worker {
    fn doing(&mut self, change: &Change) {
        self.tell(Event::Doing(change.clone()));
    }

    fn done(&mut self, change: &Change, node: Option<&str>) {
        self.tell(Event::Done(change.clone(), node.map(str::to_owned)));
    }

    fn failed(&mut self, change: &Change, error: &Error) {
        self.tell(Event::Failed(change.clone(), error.clone()));
    }

    fn remark(&mut self, text: &str) {
        self.tell(Event::Remark(text.to_owned()));
    }

    fn stop(&self) -> bool {
        self.stop.is_told()
    }
}
