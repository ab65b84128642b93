//! Any sequence of replicated commands.
//!
//! ```text
//! input   = record*
//! record  = 0 length change            DLOCK.APPLY
//!         | 1 length arguments         DLOCK.RELEASE verbatim, one argument per line
//!         | 2 length fence \n grace    DLOCK.SYNC
//!         | 3 milliseconds             time passes
//! length  = two bytes, little-endian; milliseconds = one byte
//! ```

use super::choices::Choices;
use super::holders::{assert_sound, who};
use dlock_core::{
    Checkpoint, Effects, Engine, Instant, Lock, LockRef, MAX_FENCE, Release, Replication, TransitionContext,
    decode_lock, encode_lock, number,
};

const NAME: LockRef<'_> = LockRef { db: 0, key: b"lock" };

/// The longest grace period in a checkpoint: ten years.
const LONGEST_GRACE_MS: u64 = 10 * 366 * 24 * 60 * 60 * 1000;
/// The clock of the second replica, and how far it lags.
const OTHER_CLOCK_MICROS: i64 = -987_654_321_000;
const LAG_MS: u64 = 40;

/// A replica rejects a command without any effect, or has a sound lock afterwards that can be stored and loaded. A
/// second replica, which lags and has another clock, has the same holders.
pub fn replication(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let mut replica = Replica::new(0);
    let mut late = Replica::new(OTHER_CLOCK_MICROS);
    while !choices.is_empty() {
        let kind = choices.byte() % 4;
        if kind == 3 {
            let ms = u64::from(choices.byte());
            replica.now = replica.now.after_ms(ms);
            late.now = late.now.after_ms(ms);
            continue;
        }
        let command = choices.bytes();
        let accepted = replica.execute(kind, command);
        let on_time = late.now;
        late.now = on_time.after_ms(LAG_MS);
        assert_eq!(late.execute(kind, command), accepted);
        late.now = on_time;
        assert_eq!(who(&late.lock), who(&replica.lock));
        assert_eq!(late.engine.fences, replica.engine.fences);
    }
}

struct Replica {
    lock: Lock,
    engine: Engine,
    now: Instant,
}

impl Replica {
    fn new(clock_micros: i64) -> Self {
        Self {
            lock: Lock::default(),
            engine: Engine::starting(),
            now: Instant::from_micros(clock_micros),
        }
    }

    /// Returns whether the command was accepted.
    fn execute(&mut self, kind: u8, command: &[u8]) -> bool {
        let (before, known_before) = (self.lock.clone(), self.engine.fences.known());
        let mut effects = Effects::default();
        let cx = TransitionContext::at(self.now);
        let mut transition = self.engine.begin(NAME, &mut self.lock, &cx, &mut effects);
        let accepted = match kind {
            0 => transition.apply(command).is_ok(),
            1 => {
                let request = Release::parse(command.split(|byte| *byte == b'\n'));
                request.is_ok_and(|request| transition.apply_release(&request).is_ok())
            }
            _ => return self.checkpoint(command),
        };
        let propagates = effects.replication == Replication::Verbatim;
        if !accepted {
            assert!(!propagates && effects.events.is_empty());
            assert_eq!((&self.lock, self.engine.fences.known()), (&before, known_before));
        }
        // A release by an unknown request id is accepted without effect.
        assert!(propagates || self.lock == before);
        self.check();
        accepted
    }

    fn checkpoint(&mut self, command: &[u8]) -> bool {
        let mut texts = command.split(|byte| *byte == b'\n');
        let mut next = |max| number("a number", texts.next().unwrap_or_default(), 0, max);
        let (Ok(fence), Ok(left_ms)) = (next(MAX_FENCE), next(LONGEST_GRACE_MS)) else {
            return false;
        };
        let end_before = self.engine.grace.end();
        let grace_left_ms = left_ms;
        self.engine
            .apply_checkpoint(Checkpoint { fence, grace_left_ms }, self.now);
        assert!(self.engine.fences.known() >= fence && self.engine.grace.left_ms(self.now) >= left_ms);
        assert!(self.engine.grace.end() >= end_before);
        true
    }

    /// The lock is sound, its fences are known, and storing and loading it gives the same lock.
    fn check(&self) {
        assert_sound(&self.lock);
        let known = self.engine.fences.known();
        assert!(self.lock.holders().iter().all(|holder| holder.fence() <= known));
        if self.lock.is_free() {
            return;
        }
        let cx = self.engine.context(self.now);
        let read = decode_lock(&encode_lock(&self.lock, &cx), self.now).expect("a lock that was encoded");
        assert_eq!(who(&read), who(&self.lock));
        for (read, stored) in read.holders().iter().zip(self.lock.holders()) {
            assert!(cx.lease_end(read) >= cx.lease_end(stored));
        }
    }
}
