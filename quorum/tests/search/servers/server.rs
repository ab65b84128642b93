//! One server, as far as one lock goes: fence counter, holder, clock.
//!
//! Of the buckets of names there is only the one of the lock: other locks only add to the counter.

use super::setting::{Breach, Fence, Setting};

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
        setting.breach == Some(Breach::UnboundedMinFence)
            || min <= self.counter.max(self.clock + setting.grace)
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
            _ => self.clock + setting.grace,
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
    use dlock_core::testing::{self, Answer, Request};
    use dlock_core::{Acquire, Extend, GraceLength, GrantRef, Limit};

    const OWNERS: [&[u8]; 2] = [b"a", b"b"];
    /// What the core counts in a millisecond.
    const FENCES_PER_MS: u64 = 2048;
    /// What its clock shows: milliseconds since 2024.
    const CLOCK: u64 = (testing::IN_2025_UNIX_MS - 1_704_067_200_000) * FENCES_PER_MS;

    /// The core in the same state. Its startup grace period is a millisecond, of 2048 fences. All fences of the model have an
    /// offset in the core, so that the bound of MINFENCE is at the end of that millisecond.
    struct Core {
        server: testing::Server,
        offset: u64,
    }

    impl Core {
        fn like(server: &Server) -> Self {
            let mut core = Self {
                // It has started without a grace period.
                server: testing::Server::with(&["lock"]),
                offset: 0,
            };
            core.server
                .set_policy(|policy| policy.graces.startup = GraceLength::Ms(1));
            let bound = CLOCK + FENCES_PER_MS;
            core.offset = bound - u64::from(server.clock + Setting::default().grace);
            if let Some((client, fence)) = server.holder {
                core.observe(fence - 1);
                core.acquire(client, None);
            }
            core.observe(server.counter);
            core
        }

        fn observe(&mut self, fence: Fence) {
            let fence = self.in_core(fence);
            self.server.state_mut().fences.observe(fence);
        }

        fn in_core(&self, fence: Fence) -> u64 {
            u64::from(fence) + self.offset
        }

        fn in_model(&self, fence: u64) -> Fence {
            Fence::try_from(fence - self.offset).expect("a fence of the model")
        }

        fn acquire(&mut self, client: usize, min: Option<Fence>) -> Option<Fence> {
            let request = Request::Acquire(Acquire {
                owner: OWNERS[client],
                lease_ms: 1_000,
                limit: Limit::MUTEX,
                wait: None,
                request_id: Some(b"r"),
                min_fence: min.map(|min| self.in_core(min)),
            });
            match self.server.ask(0, 0, &request) {
                Some(Ok(Answer::Granted(granted))) => Some(self.in_model(granted.fence)),
                _ => None,
            }
        }

        fn raise(&mut self, client: usize, min: Fence) -> Option<Fence> {
            let request = Request::Extend(Extend {
                owner: OWNERS[client],
                lease_ms: 1_000,
                grant: GrantRef::RequestId(b"r"),
                min_fence: Some(self.in_core(min)),
            });
            let extended = self.server.ask(0, 0, &request)?;
            extended.ok().map(|_| min)
        }

        fn state(&self) -> (Fence, Option<(&[u8], Fence)>) {
            let holder = self.server.lock_at(0).holders().first();
            (
                self.in_model(self.server.state().fences.known()),
                holder.map(|holder| (holder.owner(), self.in_model(holder.fence()))),
            )
        }
    }

    #[test]
    fn server_of_the_model_agrees_with_the_core() {
        let setting = Setting::default();
        for counter in 1..9 {
            let holders = (0..2).flat_map(|client| (1..=counter).map(move |fence| (client, fence)));
            for holder in holders.map(Some).chain([None]) {
                let before = Server {
                    counter,
                    holder,
                    clock: 1,
                    grace: None,
                };
                for (client, min) in (0..2).flat_map(|client| (1..12).map(move |min| (client, min))) {
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

    fn state(server: &Server) -> (Fence, Option<(&'static [u8], Fence)>) {
        let holder = server.holder;
        (
            server.counter,
            holder.map(|(client, fence)| (OWNERS[client], fence)),
        )
    }
}
