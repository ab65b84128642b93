//! Tries every way through a small world, shortest ways first.

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A world: a state, and what can happen in it.
pub trait World: Clone + Hash {
    /// One thing that happens.
    type Event: Copy + Display;
    /// A promise that is broken.
    type Broken: Copy;

    /// All that can happen now.
    fn events(&self) -> Vec<Self::Event>;

    /// Makes it happen; the promise that it breaks, if it does.
    fn happen(&mut self, event: Self::Event) -> Result<(), Self::Broken>;
}

/// What a search has seen.
pub struct Outcome<B> {
    /// So many different states.
    pub states: usize,
    /// The first promise that was found broken, with a shortest way there.
    pub found: Option<(B, Vec<String>)>,
}

/// Searches until there is no new state, or a promise is broken.
pub fn search<W: World>(start: W) -> Outcome<W::Broken> {
    let mut seen = Seen::default();
    seen.add(&start, None);
    let mut next = VecDeque::from([(0, start)]);
    while let Some((place, world)) = next.pop_front() {
        for event in world.events() {
            let mut after = world.clone();
            if let Err(broken) = after.happen(event) {
                let found = Some((broken, seen.way_to(place, event)));
                return Outcome {
                    states: seen.ways.len(),
                    found,
                };
            }
            if let Some(place) = seen.add(&after, Some((place, event))) {
                next.push_back((place, after));
            }
        }
    }
    Outcome {
        states: seen.ways.len(),
        found: None,
    }
}

/// The states that were seen, by a hash of 128 bits, and from where each was reached first.
struct Seen<E> {
    places: HashSet<u128>,
    ways: Vec<Option<(usize, E)>>,
}

impl<E: Copy + Display> Seen<E> {
    /// The place of a state that is new.
    fn add(&mut self, world: &impl Hash, way: Option<(usize, E)>) -> Option<usize> {
        if !self.places.insert(hash(world)) {
            return None;
        }
        self.ways.push(way);
        Some(self.ways.len() - 1)
    }

    fn way_to(&self, mut place: usize, last: E) -> Vec<String> {
        let mut way = vec![last.to_string()];
        while let Some((from, event)) = self.ways[place] {
            way.push(event.to_string());
            place = from;
        }
        way.reverse();
        way
    }
}

impl<E> Default for Seen<E> {
    fn default() -> Self {
        Self {
            places: HashSet::new(),
            ways: Vec::new(),
        }
    }
}

/// Two hashes of 64 bits: among a million states none are the same by chance.
fn hash(world: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
