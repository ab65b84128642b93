//! What goes wrong on the network.

use std::time::Duration;

use super::pipe::lock;
use super::{LATE, Net, Route, random_ms};
use crate::simulation::{elapsed, tell};

/// What becomes of requests that are on their way when their connection is lost.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// They are run, and only the replies are lost.
    Run,
    Lost,
    /// The first of them arrive late, the others never.
    Late,
}

/// Three times within this time are a storm.
const STORM: Duration = Duration::from_millis(500);

impl Route {
    /// Notes that connections were cut, or waiting requests were turned away.
    fn disturb(&mut self) {
        let now = elapsed();
        if self.disturbed[0] != now {
            self.disturbed = [now, self.disturbed[0], self.disturbed[1]];
        }
    }
}

impl Net {
    pub fn random_fate(&mut self) -> Fate {
        match self.random.u32(..4) {
            0 => Fate::Run,
            1 => Fate::Lost,
            _ => Fate::Late,
        }
    }

    /// The connections of a process.
    pub fn connections_of(&self, process: usize) -> Vec<u32> {
        let own = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.process == process);
        own.map(|(number, _)| *number).collect()
    }

    pub fn cut(&mut self, number: u32, fate: Fate) {
        tell(|| format!("{number}: cut, {fate:?}"));
        self.collect();
        self.counts.note("cut");
        if let Some(connection) = self.connections.get(&number) {
            self.routes[connection.process].disturb();
        }
        self.lose(number, fate, LATE);
    }

    pub(super) fn lose(&mut self, number: u32, fate: Fate, within: Duration) {
        let now = elapsed();
        if let Fate::Run = fate {
            while let Some(connection) = self.connections.get_mut(&number)
                && connection.waits.is_none()
                && let Some((_, command)) = connection.requests.pop_front()
            {
                self.run_command(number, &command);
            }
        }
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        connection
            .replies
            .iter()
            .for_each(|_| self.counts.note("lost reply"));
        if let Fate::Late = fate {
            let mut at = now;
            let arrive = self.random.usize(..=connection.requests.len());
            for (_, command) in connection.requests.into_iter().take(arrive) {
                at += random_ms(&mut self.random, now + within - at);
                self.last_late += 1;
                self.late.insert((at, self.last_late), command);
            }
        }
        if let Some(call) = connection.waits {
            self.waiting.insert(call, None);
            let later = random_ms(&mut self.random, LATE);
            self.lost_readers.push((now + later, call));
        }
        let mut pipe = lock(&connection.pipe);
        pipe.is_cut = true;
        pipe.wake();
    }

    pub fn stall_connection(&mut self, number: u32, time: Duration) {
        tell(|| format!("{number}: stalled for {time:?}"));
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.stalled_until = elapsed() + time;
        }
    }

    pub fn stall(&mut self, process: usize, time: Duration) {
        tell(|| format!("the network of process {process} stalls for {time:?}"));
        self.routes[process].stalled_until = elapsed() + time;
    }

    pub fn refuse(&mut self, process: usize, time: Duration) {
        tell(|| format!("process {process} is refused for {time:?}"));
        self.routes[process].refused_until = elapsed() + time;
    }

    pub fn reject(&mut self, process: usize, time: Duration, error: &'static str) {
        tell(|| format!("process {process} is told {error} for {time:?}"));
        self.routes[process].rejected = Some((elapsed() + time, error));
    }

    /// Those who wait for a lock are told to ask elsewhere.
    pub fn turn_away(&mut self, key: &[u8]) {
        tell(|| {
            format!(
                "those who wait for {} are turned away",
                String::from_utf8_lossy(key)
            )
        });
        self.routes.iter_mut().for_each(Route::disturb);
        self.server.turn_away(key, "CLUSTERDOWN Hash slot not served");
        self.turned_away.insert(key.to_vec());
    }

    /// So are some of those who are queued for a while.
    pub fn turn_away_all(&mut self, time: Duration) {
        self.turns_away_until = elapsed() + time;
    }

    /// Another client ends the inbox of a process.
    pub fn end_inbox(&mut self, process: usize) {
        if let Some((inbox, cursor)) = self.routes[process].inbox.clone() {
            tell(|| format!("the inbox of process {process} ends"));
            self.counts.note("ended inbox");
            self.run_for_nobody(&[b"DLOCK.GRANTS", &inbox, &cursor, b"TTL", b"0"]);
        }
    }

    /// Nothing goes wrong from now on.
    pub fn calm_down(&mut self) {
        tell(|| "no more faults".into());
        for route in &mut self.routes {
            let inbox = route.inbox.take();
            *route = Route {
                inbox,
                ..Route::default()
            };
        }
        for connection in self.connections.values_mut() {
            connection.stalled_until = Duration::ZERO;
        }
    }

    /// Whether the inbox that a process has read last is there.
    pub fn has_inbox(&self, process: usize) -> bool {
        let inbox = self.routes[process].inbox.as_ref();
        inbox.is_some_and(|(name, _)| self.server.has_inbox(name))
    }

    /// Whether all that a process sends arrives and is served.
    pub fn is_good(&self, process: usize) -> bool {
        let (now, route) = (elapsed(), &self.routes[process]);
        let rejected_until = route.rejected.map_or(Duration::ZERO, |(until, _)| until);
        // In a storm nothing lasts long enough for what has to be done.
        let is_storm = route.disturbed[2] > Duration::ZERO && now - route.disturbed[2] < STORM;
        let mut own = self
            .connections
            .values()
            .filter(|connection| connection.process == process);
        route.refused_until.max(route.stalled_until).max(rejected_until) <= now
            && !is_storm
            && own.all(|connection| connection.stalled_until <= now)
    }
}
