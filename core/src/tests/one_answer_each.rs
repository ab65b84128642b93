//! Transitions that answer one waiter each, and requests that come before the timer has answered the others.
//!
//! The model answers all at once, so it cannot be asked. The invariants say what must be true of each transition, and in
//! the end each client has one reply.

use std::cell::Cell;

use proptest::test_runner::TestRunner;

use super::schedule::{LOCKS, config, queue_schedules};
use crate::effects::MaxAnswers;
use crate::testing::{Admin, Client, Memory, Micros, ORIGIN, Reply, Request, Server, Step};

struct Alone {
    server: Server,
    /// The requests of the clients; a client is an index.
    asks: Vec<(usize, Request<'static>)>,
    /// The clients that have a reply or are disconnected.
    done: Vec<bool>,
    memories: Vec<Memory>,
    dump: Option<Vec<u8>>,
    /// The requests for a lock with waiters that the timer had still to answer.
    came_between: usize,
}

impl Alone {
    fn new() -> Self {
        let mut server = Server::new(LOCKS, ORIGIN);
        server.effects.max_answers = MaxAnswers(1);
        server.set_policy(|policy| policy.max_waiters_per_lock = 8);
        Self {
            server,
            asks: Vec::new(),
            done: Vec::new(),
            memories: (0..LOCKS).map(|_| Memory::default()).collect(),
            dump: None,
            came_between: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Ask { lock, request, given } => {
                let request = self.memories[lock].with_fence(request, given);
                self.came_between += usize::from(self.server.is_cut(lock));
                let client = self.asks.len();
                self.asks.push((lock, request));
                self.done.push(false);
                if let Some(reply) = self.server.ask(client, lock, &request) {
                    self.note(client, &reply);
                }
            }
            Step::Pass(pass) => {
                let ends: Vec<Micros> = (0..LOCKS).flat_map(|lock| self.server.lease_ends(lock)).collect();
                let (now, wakeup) = (self.server.now(), self.server.next_wakeup().map(|at| at.max(0)));
                self.server
                    .set_now(pass.target(now, &ends, self.server.grace_end(), |_| wakeup));
            }
            // One of them.
            Step::FireTimers => {
                if let Some(lock) = self.server.due() {
                    self.server.on_timer(lock);
                }
            }
            Step::Disconnect { lock, place } => {
                let queue = self.server.view(lock).queue;
                let clients: Vec<Client> = queue.iter().map(|waiter| waiter.client).collect();
                if !clients.is_empty() {
                    let client = clients[place % clients.len()];
                    self.server.disconnect(client);
                    self.done[client] = true;
                }
            }
            Step::Admin(command) => self.administrate(command),
            Step::Grace(ms) => {
                for lock in 0..LOCKS {
                    self.server.drain(lock);
                    self.server.expire_holders(lock);
                }
                self.server.begin_grace(ms);
            }
            Step::Evictable(is_evictable) => self.server.set_policy(|policy| policy.evictable = is_evictable),
            Step::DetectDeadlocks(detect) => {
                self.server.set_policy(|policy| policy.detect_deadlocks = detect)
            }
            Step::LoseNextGrant | Step::GrantsPaused(_) => {}
            step => panic!("no step of locks with waiters: {step:?}"),
        }
        for (client, reply) in self.server.take_replies() {
            self.note(client, &reply);
        }
    }

    fn administrate(&mut self, command: Admin) {
        match command {
            Admin::Delete(lock) => self.server.delete(lock),
            Admin::Rename { from, to } if from == to => {}
            Admin::Rename { from, to } => self.server.rename(from, to),
            Admin::Dump(lock) => self.dump = self.server.dump(lock),
            Admin::Restore(lock) => {
                if let Some(dump) = self.dump.take() {
                    self.server.restore(lock, &dump);
                }
            }
            Admin::OtherType(lock) => {
                self.server.delete(lock);
                self.server.drain(lock);
            }
        }
    }

    fn note(&mut self, client: Client, reply: &Reply) {
        assert!(!self.done[client], "a second reply: {reply:?}");
        self.done[client] = true;
        let (lock, request) = &self.asks[client];
        self.memories[*lock].note(request.owner(), reply);
    }

    /// Time passes until all clients have a reply.
    fn finish(&mut self) {
        const A_LONG_LEASE: Micros = 1_000_000;
        self.step(Step::Evictable(false));
        for _ in 0..=self.asks.len() {
            self.server.pass(A_LONG_LEASE);
            self.server.process_due();
            for (client, reply) in self.server.take_replies() {
                self.note(client, &reply);
            }
        }
        assert!(self.done.iter().all(|done| *done), "a client never got a reply");
        assert!(self.server.state().wait_table.is_empty() && self.server.next_wakeup().is_none());
    }
}

#[test]
fn requests_between_answers_break_no_invariant() {
    let came_between = Cell::new(0);
    let outcome = TestRunner::new(config(4_000)).run(&queue_schedules(), |schedule| {
        let mut alone = Alone::new();
        for step in schedule {
            alone.step(step);
        }
        alone.finish();
        came_between.set(came_between.get() + alone.came_between);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(
        cfg!(miri) || came_between.get() > 1_000,
        "{} requests only",
        came_between.get()
    );
}
