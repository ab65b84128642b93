//! The model: one lock, written from the contract and from nothing else.
//!
//! It knows no clever representation and never sweeps: a holder whose lease has ended stays in the list
//! and is ignored. So an owner may stand in the list several times, alive at most once.

use super::ops::{Action, Answer, Limit, Micros, Request, View};

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: Micros,
    pub grace_end: Option<Micros>,
    pub evictable: bool,
    /// The last fence given. Each grant adds one; a raise of the counter is told from outside.
    pub last_fence: u64,
    pub holders: Vec<Holder>,
}

#[derive(Clone, Debug)]
pub struct Holder {
    pub owner: u8,
    pub fence: u64,
    pub limit: Limit,
    pub since: Micros,
    pub lease_end: Micros,
    /// Oldest first; `None` = a hold without a name.
    pub holds: Vec<Option<u8>>,
}

impl Model {
    pub fn ask(&mut self, request: &Request) -> Answer {
        match request.action {
            Action::Acquire {
                lease_ms,
                limit,
                name,
            } => self.acquire(request.owner, lease_ms, limit, name),
            Action::ReleaseOne | Action::ReleaseAll | Action::ReleaseNamed(_) => self.release(request),
            Action::Extend { lease_ms } => self.extend(request, lease_ms),
        }
    }

    fn acquire(&mut self, owner: u8, lease_ms: u64, limit: Limit, name: Option<u8>) -> Answer {
        let lease_end = self.now + micros(lease_ms);
        if let Some(place) = self.place_of(owner) {
            let own_limit = self.holders[place].limit;
            if as_number(limit) < as_number(own_limit) {
                return Answer::Error("ERR", u64::from(own_limit.unwrap_or(0)));
            }
            if name.is_some() && self.holders[place].holds.contains(&name) {
                return self.granted(place);
            }
            if let Some(grace_error) = self.grace_error() {
                return grace_error;
            }
            let holder = &mut self.holders[place];
            let named = holder.holds.iter().filter(|hold| hold.is_some()).count();
            if name.is_some() && named == 64 {
                return Answer::Error("ERR", 64);
            }
            holder.holds.push(name);
            holder.lease_end = holder.lease_end.max(lease_end);
            return self.granted(place);
        }
        if let Some(grace_error) = self.grace_error() {
            return grace_error;
        }
        if self.evictable {
            return Answer::Error("EVICTABLE", 0);
        }
        let live: Vec<&Holder> = self.live().collect();
        let after = live.len() as u64 + 1;
        if after > as_number(limit) || live.iter().any(|holder| after > as_number(holder.limit)) {
            return Answer::NotGranted;
        }
        self.last_fence += 1;
        let holds = vec![name];
        self.holders.push(Holder {
            owner,
            fence: self.last_fence,
            limit,
            since: self.now,
            lease_end,
            holds,
        });
        self.granted(self.holders.len() - 1)
    }

    fn release(&mut self, request: &Request) -> Answer {
        let place = match self.place_for(request) {
            Ok(place) => place,
            Err(Answer::Error("NOTHELD" | "NOTOWNER", _))
                if matches!(request.action, Action::ReleaseNamed(_)) =>
            {
                return Answer::Holds(0);
            }
            Err(error) => return error,
        };
        let holds = &mut self.holders[place].holds;
        match request.action {
            Action::ReleaseAll => holds.clear(),
            Action::ReleaseNamed(name) => holds.retain(|hold| *hold != Some(name)),
            _ => {
                let unnamed = holds.iter().position(|hold| hold.is_none());
                holds.remove(unnamed.unwrap_or(holds.len() - 1));
            }
        }
        let left = holds.len() as u64;
        if left == 0 {
            self.holders.remove(place);
        }
        Answer::Holds(left)
    }

    fn extend(&mut self, request: &Request, lease_ms: u64) -> Answer {
        if let (None, Some(grace_error)) = (request.fence, self.grace_error()) {
            return grace_error;
        }
        match self.place_for(request) {
            Ok(place) => {
                let lease_end = self.now + micros(lease_ms);
                let holder = &mut self.holders[place];
                holder.lease_end = holder.lease_end.max(lease_end);
                Answer::Lease(self.lease_ms(place))
            }
            Err(error) => error,
        }
    }

    /// A server starts with this lock as it was stored: times are stored in whole milliseconds, so that a
    /// lease, or a grace, ends up to one later, never earlier.
    pub fn restart(&mut self) {
        let now = self.now;
        let later = |end: Micros| now + (end - now + 999) / 1000 * 1000;
        for holder in &mut self.holders {
            holder.since = now - (now - holder.since) / 1000 * 1000;
            if holder.lease_end > now {
                holder.lease_end = later(holder.lease_end);
            }
        }
        self.grace_end = self.grace_end.filter(|end| *end > now).map(later);
    }

    /// The server becomes a primary: the counter of fences was raised, and a grace begins, or the one that
    /// runs becomes longer.
    pub fn take_over(&mut self, last_fence: u64, grace_ms: u64) {
        assert!(last_fence >= self.last_fence, "a raise does not lower");
        self.last_fence = last_fence;
        if grace_ms > 0 {
            self.grace_end = self.grace_end.max(Some(self.now + micros(grace_ms)));
        }
        let Some(end) = self.grace_end.filter(|end| *end > self.now) else {
            return;
        };
        let now = self.now;
        for holder in self.holders.iter_mut().filter(|holder| holder.lease_end > now) {
            holder.lease_end = holder.lease_end.max(end);
        }
    }

    /// The live holders, longest-standing first.
    pub fn live(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| holder.lease_end > self.now)
    }

    pub fn view(&self) -> Vec<View> {
        let view = |holder: &Holder| View {
            owner: holder.owner,
            fence: holder.fence,
            limit: holder.limit,
            unnamed: holder.holds.iter().filter(|hold| hold.is_none()).count() as u64,
            names: holder.holds.iter().copied().flatten().collect(),
            lease_ms: whole_ms(holder.lease_end - self.now),
            held_ms: whole_ms(self.now - holder.since),
        };
        self.live().map(view).collect()
    }

    fn place_of(&self, owner: u8) -> Option<usize> {
        self.holders
            .iter()
            .position(|holder| holder.owner == owner && holder.lease_end > self.now)
    }

    /// The live holder that asks, under the fence that it gives.
    fn place_for(&self, request: &Request) -> Result<usize, Answer> {
        match self.place_of(request.owner) {
            None if self.live().next().is_some() => Err(Answer::Error("NOTOWNER", 0)),
            None => Err(Answer::Error("NOTHELD", 0)),
            Some(place) => match self.holders[place].fence {
                fence if request.fence.is_none_or(|given| given == fence) => Ok(place),
                fence => Err(Answer::Error("STALE", fence)),
            },
        }
    }

    fn grace_error(&self) -> Option<Answer> {
        let left = self.grace_end? - self.now;
        (left > 0).then(|| Answer::Error("GRACE", whole_ms(left + 999)))
    }

    fn granted(&self, place: usize) -> Answer {
        let holder = &self.holders[place];
        Answer::Granted {
            fence: holder.fence,
            holds: holder.holds.len() as u64,
            lease_ms: self.lease_ms(place),
        }
    }

    fn lease_ms(&self, place: usize) -> u64 {
        whole_ms(self.holders[place].lease_end - self.now)
    }
}

/// No limit is larger than every number.
fn as_number(limit: Limit) -> u64 {
    limit.map_or(u64::MAX, u64::from)
}

fn micros(ms: u64) -> Micros {
    ms as Micros * 1000
}

fn whole_ms(micros: Micros) -> u64 {
    micros as u64 / 1000
}
