//! One server, as far as one lock goes: fence counter, holder, clock.
//!
//! Of the buckets of names there is only the one of the lock: other locks only add to the counter.

use super::setting::{Breach, Setting};

/// Counted from the same moment for all servers. Every fence in this model is below 256.
pub type Fence = u8;

/// How far the clock of the server gets in its startup grace period.
pub const GRACE: Fence = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub counter: Fence,
    /// The client that holds the lock, and its fence.
    pub holder: Option<(usize, Fence)>,
    pub clock: Fence,
    /// It is in the grace period after a restart without data. The client whose hold it forgot, if there was one.
    pub grace: Option<Option<usize>>,
}

impl Server {
    pub fn is_held_by(&self, client: usize) -> bool {
        self.holder.is_some_and(|(holder, _)| holder == client)
    }

    /// ACQUIRE, with MINFENCE or without: the fence of the grant, or of the hold that the client already has.
    pub fn acquire(&mut self, client: usize, min: Option<Fence>, setting: &Setting) -> Option<Fence> {
        if self.grace.is_some() || min.is_some_and(|min| !self.accepts(min, setting)) {
            return None;
        }
        match self.holder {
            Some((holder, fence)) => (holder == client).then_some(fence),
            None => {
                let fence = (self.counter + 1).max(min.unwrap_or_default());
                self.counter = fence;
                self.holder = Some((client, fence));
                Some(fence)
            }
        }
    }

    /// EXTEND with REQID and MINFENCE: the fence of the hold afterwards, `None` if it was rejected.
    pub fn raise(&mut self, client: usize, min: Fence, setting: &Setting) -> Option<Fence> {
        if setting.breach == Some(Breach::RaiseWithoutHold) && self.grace.is_none() {
            self.counter = self.counter.max(min);
            return Some(min);
        }
        let (holder, fence) = self.holder?;
        if self.grace.is_some() || holder != client || fence > min || !self.accepts(min, setting) {
            return None;
        }
        self.holder = Some((client, min));
        if setting.breach != Some(Breach::RaiseWithoutCounter) {
            self.counter = self.counter.max(min);
        }
        Some(min)
    }

    fn accepts(&self, min: Fence, setting: &Setting) -> bool {
        setting.breach == Some(Breach::UnboundedMinFence) || min <= self.counter.max(self.clock + GRACE)
    }

    /// It restarts with its data, and advances its counter.
    pub fn restart(&mut self) {
        self.counter = self.clock.max(self.counter + 1);
    }

    /// It restarts without its data.
    pub fn crash(&mut self) {
        self.grace = Some(self.holder.take().map(|(client, _)| client));
    }

    /// Its grace period ends.
    pub fn end_grace(&mut self, setting: &Setting) {
        self.grace = None;
        self.counter = match setting.breach {
            Some(Breach::FencesAdvancedBeforeGrace) => self.clock,
            _ => self.clock + GRACE,
        };
    }

    /// The lease ends, or the client releases it.
    pub fn end_hold_of(&mut self, client: usize) {
        self.holder.take_if(|(holder, _)| *holder == client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_core::{
        Acquire, Acquired, Effects, Engine, Extend, GrantRef, Limit, Lock, LockRef, TransitionContext,
        WaitPolicy,
    };

    const NAME: LockRef<'_> = LockRef { db: 0, key: b"lock" };
    const OWNERS: [&[u8]; 2] = [b"a", b"b"];
    const POLICY: WaitPolicy = WaitPolicy {
        max_waiters: 0,
        detect_deadlocks: false,
    };

    /// The core in the same state. Its bound is the one of the model, since clocks count in milliseconds.
    struct Core {
        engine: Engine,
        lock: Lock,
        cx: TransitionContext,
    }

    impl Core {
        fn like(server: &Server) -> Self {
            let mut core = Self {
                engine: Engine::starting(),
                lock: Lock::default(),
                cx: TransitionContext {
                    max_min_fence: Some(u64::from(server.counter.max(server.clock + GRACE))),
                    ..TransitionContext::at(Default::default())
                },
            };
            core.engine.fences.set_quorum(true);
            if let Some((client, fence)) = server.holder {
                core.engine.fences.observe(u64::from(fence) - 1);
                core.acquire(client, None);
            }
            core.engine.fences.observe(u64::from(server.counter));
            core
        }

        fn acquire(&mut self, client: usize, min: Option<Fence>) -> Option<Fence> {
            let request = Acquire {
                owner: OWNERS[client],
                lease_ms: 1_000,
                limit: Limit::MUTEX,
                block: None,
                request_id: Some(b"r"),
                min_fence: min.map(u64::from),
            };
            let effects = &mut Effects::default();
            let mut transition = self.engine.begin(NAME, &mut self.lock, &self.cx, effects);
            match transition.acquire(&request, POLICY) {
                Ok(Acquired::Granted(granted)) => Fence::try_from(granted.fence).ok(),
                _ => None,
            }
        }

        fn raise(&mut self, client: usize, min: Fence) -> Option<Fence> {
            let request = Extend {
                owner: OWNERS[client],
                lease_ms: 1_000,
                grant: GrantRef::RequestId(b"r"),
                min_fence: Some(u64::from(min)),
            };
            let effects = &mut Effects::default();
            let mut transition = self.engine.begin(NAME, &mut self.lock, &self.cx, effects);
            transition.extend(&request).ok().map(|_| min)
        }

        fn state(&self) -> (u64, Option<(&[u8], u64)>) {
            let holder = self.lock.holders().first();
            (
                self.engine.fences.known(),
                holder.map(|holder| (holder.owner(), holder.fence())),
            )
        }
    }

    #[test]
    fn server_of_the_model_agrees_with_the_core() {
        let setting = Setting::default();
        for counter in 1..6 {
            let holders = (0..2).flat_map(|client| (1..=counter).map(move |fence| (client, fence)));
            for holder in holders.map(Some).chain([None]) {
                let before = Server {
                    counter,
                    holder,
                    clock: 1,
                    grace: None,
                };
                for (client, min) in (0..2).flat_map(|client| (1..9).map(move |min| (client, min))) {
                    for min in [None, Some(min)] {
                        let (mut server, mut core) = (before, Core::like(&before));
                        assert_eq!(server.acquire(client, min, &setting), core.acquire(client, min));
                        let expected = state(&server);
                        assert_eq!(core.state(), expected, "{before:?}: {client} acquires, {min:?}");
                    }
                    let (mut server, mut core) = (before, Core::like(&before));
                    assert_eq!(server.raise(client, min, &setting), core.raise(client, min));
                    let expected = state(&server);
                    assert_eq!(core.state(), expected, "{before:?}: {client} raises to {min}");
                }
            }
        }
    }

    fn state(server: &Server) -> (u64, Option<(&[u8], u64)>) {
        let holder = server.holder;
        (
            u64::from(server.counter),
            holder.map(|(client, fence)| (OWNERS[client], u64::from(fence))),
        )
    }
}
