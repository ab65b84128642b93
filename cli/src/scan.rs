//! All locks of the servers, by SCAN: the servers serve others meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use redis::{Pipeline, cmd};
use redis_dlock_client::LockInfo;

use crate::exit::Failure;
use crate::lock::{Named, info_command};
use crate::server::{Node, is_hidden};

/// Keys that a server looks at in one go: less than a millisecond of its time.
const STEP: u64 = 1000;
/// A scan that is over sooner needs no progress bar.
const LONG: Duration = Duration::from_millis(300);

/// A walk through the keys of one server.
pub struct Walk {
    pattern: Option<Vec<u8>>,
    cursor: u64,
}

impl Walk {
    pub fn new(pattern: Option<&[u8]>) -> Self {
        Self {
            pattern: pattern.map(<[u8]>::to_vec),
            cursor: 0,
        }
    }

    /// The locks among the next keys; the walk may be over then.
    pub fn step(&mut self, node: &mut Node) -> Result<Vec<Vec<u8>>, Failure> {
        let mut command = cmd("SCAN");
        command
            .arg(self.cursor)
            .arg("TYPE")
            .arg("dist-lock")
            .arg("COUNT")
            .arg(STEP);
        if let Some(pattern) = &self.pattern {
            command.arg("MATCH").arg(pattern);
        }
        let (cursor, names): (u64, Vec<Vec<u8>>) = node.query(&command)?;
        self.cursor = cursor;
        Ok(names)
    }

    pub fn is_over(&self) -> bool {
        self.cursor == 0
    }
}

/// Locks that were found.
#[derive(Default)]
pub struct Found {
    pub locks: Vec<Named>,
    /// The names of those that the user may not look at.
    pub hidden: Vec<Vec<u8>>,
}

/// What is known of these locks. A key that has become something else meanwhile is left out.
pub fn infos(node: &mut Node, names: Vec<Vec<u8>>) -> Result<Found, Failure> {
    let mut found = Found::default();
    if names.is_empty() {
        return Ok(found);
    }
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    for name in &names {
        pipeline.add_command(info_command(name));
    }
    let infos: Vec<redis::RedisResult<Option<LockInfo>>> = pipeline.query(&mut node.connection)?;
    for (name, info) in names.into_iter().zip(infos) {
        match info {
            Ok(info) => found.locks.push(Named { name, info }),
            Err(error) if error.code() == Some("WRONGTYPE") => {}
            Err(error) if is_hidden(&error) => found.hidden.push(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// All locks with names like the pattern that somebody holds or waits for, by name.
pub fn all(nodes: &mut [Node], pattern: Option<&[u8]>) -> Result<Found, Failure> {
    let progress = Progress::new(nodes);
    // A scan may come by a key twice.
    let (mut found, mut hidden) = (BTreeMap::new(), BTreeSet::new());
    for node in nodes {
        node.require_module()?;
        let mut walk = Walk::new(pattern);
        loop {
            let names = walk.step(node)?;
            progress.more(STEP, found.len());
            let here = infos(node, names)?;
            hidden.extend(here.hidden);
            found.extend(
                here.locks
                    .into_iter()
                    .filter(|lock| lock.info.is_some())
                    .map(|lock| (lock.name.clone(), lock)),
            );
            if walk.is_over() {
                break;
            }
        }
    }
    progress.bar.finish_and_clear();
    Ok(Found {
        locks: found.into_values().collect(),
        hidden: hidden.into_iter().collect(),
    })
}

/// A bar on the terminal, once it takes long.
struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    fn new(nodes: &mut [Node]) -> Self {
        // A user who may not ask for it gets a bar that stays full.
        let keys = nodes
            .iter_mut()
            .map(|node| node.query::<u64>(&cmd("DBSIZE")).unwrap_or_default());
        let bar = ProgressBar::with_draw_target(Some(keys.sum()), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} keys, {msg} locks, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            bar,
            begun: Instant::now(),
        }
    }

    fn more(&self, keys: u64, locks: usize) {
        if self.bar.is_hidden() && self.begun.elapsed() >= LONG {
            // Draws nothing where that is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(locks.to_string());
        let all = self.bar.length().unwrap_or_default();
        self.bar.set_position(all.min(self.bar.position() + keys));
    }
}
