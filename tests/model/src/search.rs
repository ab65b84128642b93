//! Breadth-first search through all states of a small model.

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A model: a state, and the events that can happen in it.
pub trait World: Clone + Hash {
    /// A step from one state to the next.
    type Event: Copy + Display;
    /// A guarantee that is violated.
    type Violation: Copy;

    /// All events that can happen now.
    fn events(&self) -> Vec<Self::Event>;

    /// Makes an event happen. Returns the guarantee that this violates.
    fn happen(&mut self, event: Self::Event) -> Result<(), Self::Violation>;
}

/// The result of a search.
pub struct Outcome<B> {
    /// The number of distinct states.
    pub states: usize,
    /// A violated guarantee with a shortest trace of events.
    pub found: Option<(B, Vec<String>)>,
}

/// Searches until all states are visited or a guarantee is violated.
pub fn search<W: World>(start: W) -> Outcome<W::Violation> {
    let mut seen = Seen::default();
    seen.add(&start, None);
    let mut next = VecDeque::from([(0, start)]);
    while let Some((place, world)) = next.pop_front() {
        for event in world.events() {
            let mut after = world.clone();
            if let Err(broken) = after.happen(event) {
                let found = Some((broken, seen.trace_to(place, event)));
                return Outcome {
                    states: seen.steps.len(),
                    found,
                };
            }
            if let Some(place) = seen.add(&after, Some((place, event))) {
                next.push_back((place, after));
            }
        }
    }
    Outcome {
        states: seen.steps.len(),
        found: None,
    }
}

/// The visited states, as hashes of 128 bits, and the step by which each was reached first.
struct Seen<E> {
    places: HashSet<u128>,
    steps: Vec<Option<(usize, E)>>,
}

impl<E: Copy + Display> Seen<E> {
    /// The index of a new state.
    fn add(&mut self, world: &impl Hash, step: Option<(usize, E)>) -> Option<usize> {
        if !self.places.insert(hash(world)) {
            return None;
        }
        self.steps.push(step);
        Some(self.steps.len() - 1)
    }

    fn trace_to(&self, mut place: usize, last: E) -> Vec<String> {
        let mut trace = vec![last.to_string()];
        while let Some((from, event)) = self.steps[place] {
            trace.push(event.to_string());
            place = from;
        }
        trace.reverse();
        trace
    }
}

impl<E> Default for Seen<E> {
    fn default() -> Self {
        Self {
            places: HashSet::new(),
            steps: Vec::new(),
        }
    }
}

/// Two hashes of 64 bits: no two of a million states collide.
fn hash(world: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
