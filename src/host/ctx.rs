//! The context of a callback as the engine's host.

use std::ffi::{CStr, c_int};

use dlock_core::cluster::nodes::LocalSlots;
use dlock_core::engine::{
    self, EngineState, Host, Level, LockValue, OpenKey, Process, Stored, WriteCheck, held_back, scheduler,
};
use dlock_core::{Call, Checkpoint, Environment, Event, Instant, Offset, WallClock};

use crate::host::blocked_clients;
use crate::host::location;
use crate::host::replica_offsets;
use crate::host::state::{STATE, module_state};
use crate::host::write_check::{PROBE, check_write};
use crate::host::{APPLY, AT_MOST, SYNC};
use crate::redis::{Ctx, Flags, Gil, RStr, RString, ReadKey, Timer, Value, WriteKey, clock, log};

/// The type of the engine's messages on the bus of the cluster.
pub const MESSAGE_TYPE: u8 = 211;

/// Wall clock and randomness of this process.
pub struct ThisProcess;

impl Environment for ThisProcess {
    fn wall_clock(&self) -> WallClock {
        WallClock::from_unix_ms(clock::unix_ms())
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}

impl Process for Gil<'_> {
    type Environment = ThisProcess;

    fn state(&mut self) -> &mut EngineState {
        &mut STATE.get(self).engine
    }

    fn now(&self) -> Instant {
        Instant::from_micros(clock::monotonic_micros())
    }

    fn environment(&self) -> ThisProcess {
        ThisProcess
    }

    fn set_wait_timer(&mut self, period_ms: u64) {
        if let Some(old) = module_state(self).wait_timer.take() {
            old.stop(self);
        }
        let timer = Timer::set(self, period_ms, on_wait_timer);
        module_state(self).wait_timer = Some(timer);
    }

    fn set_slice_timer(&mut self, period_ms: u64) {
        Timer::set(self, period_ms, on_slice_timer);
    }

    fn set_sync_timer(&mut self) {
        Timer::set(self, 0, |ctx| held_back::on_sync_timer(ctx));
    }

    fn wake(&mut self, call: Call) {
        blocked_clients::wake(self, call);
    }

    fn log(&mut self, level: Level, text: &str) {
        match level {
            Level::Notice => log::notice(text),
            Level::Warning => log::warning(text),
        }
    }
}

fn on_wait_timer(ctx: &mut Ctx<'_>) {
    // First of all: a timer that fires must not be stopped.
    module_state(ctx).wait_timer = None;
    scheduler::on_wait_timer(ctx);
}

fn on_slice_timer(ctx: &mut Ctx<'_>) {
    scheduler::on_slice_timer(ctx);
}

/// As its [`Gil`].
impl Process for Ctx<'_> {
    type Environment = ThisProcess;

    fn state(&mut self) -> &mut EngineState {
        (**self).state()
    }

    fn now(&self) -> Instant {
        (**self).now()
    }

    fn environment(&self) -> ThisProcess {
        ThisProcess
    }

    fn set_wait_timer(&mut self, period_ms: u64) {
        (**self).set_wait_timer(period_ms);
    }

    fn set_slice_timer(&mut self, period_ms: u64) {
        (**self).set_slice_timer(period_ms);
    }

    fn set_sync_timer(&mut self) {
        (**self).set_sync_timer();
    }

    fn wake(&mut self, call: Call) {
        (**self).wake(call);
    }

    fn log(&mut self, level: Level, text: &str) {
        (**self).log(level, text);
    }
}

impl<'a> Host for Ctx<'a> {
    type Name<'n> = RStr<'n>;
    type OwnName = RString;
    type Key<'h>
        = WriteKey<'h, 'a, LockValue>
    where
        Self: 'h;

    fn flags(&self) -> engine::Flags {
        self.flags().into()
    }

    fn is_paused(&self) -> bool {
        self.is_paused()
    }

    fn db(&self) -> c_int {
        self.db()
    }

    fn select_db(&mut self, db: c_int) -> bool {
        self.select_db(db)
    }

    fn bytes(name: Self::Name<'_>) -> &[u8] {
        name.bytes()
    }

    fn make_name(key: &[u8]) -> RString {
        RString::new(key)
    }

    fn name(own: &RString) -> RStr<'_> {
        own.borrow()
    }

    fn open<'h>(&'h mut self, name: RStr<'_>) -> Option<WriteKey<'h, 'a, LockValue>> {
        WriteKey::open(self, name)
    }

    fn read<R>(&mut self, name: RStr<'_>, read: impl FnOnce(Stored<&LockValue>, &mut EngineState) -> R) -> R {
        let mut key = ReadKey::<LockValue>::open(self, name);
        let (value, state) = key.value_and(&STATE);
        let stored = match value {
            Value::Nothing => Stored::Nothing,
            Value::Ours(value) => Stored::Lock(value),
            Value::OtherType => Stored::OtherType,
        };
        read(stored, &mut state.engine)
    }

    fn check_write(&mut self, name: RStr<'_>, flags: engine::Flags) -> WriteCheck {
        check_write(self, name, flags)
    }

    fn is_out_of_memory(&mut self) -> bool {
        Ctx::is_out_of_memory(self, PROBE)
    }

    fn replicate(&mut self, name: RStr<'_>, change: &[u8]) {
        self.replicate(APPLY, name, change);
    }

    fn replicate_verbatim(&mut self) {
        self.replicate_verbatim();
    }

    fn replicate_checkpoint(&mut self, checkpoint: Checkpoint, ends_grace: bool, is_logged: bool) {
        let numbers = [checkpoint.fence, checkpoint.grace_left_ms];
        self.replicate_numbers(SYNC, numbers, ends_grace.then_some(AT_MOST), is_logged);
    }

    fn signal_modified(&mut self, name: RStr<'_>) {
        self.signal_modified(name);
    }

    fn notify(&mut self, event: Event, name: RStr<'_>) {
        let event: &CStr = match event {
            Event::Acquired => c"dlock.acquired",
            Event::Released => c"dlock.released",
            Event::Extended => c"dlock.extended",
            Event::Expired => c"dlock.expired",
        };
        self.notify(event, name);
    }

    fn broadcast(&mut self, message: &[u8]) {
        Ctx::broadcast(self, MESSAGE_TYPE, message);
    }

    fn block(&mut self, call: Call) {
        blocked_clients::block(self, call);
    }

    fn replica_offsets(&mut self) -> Option<(Offset, Vec<Offset>)> {
        replica_offsets::read(self)
    }

    fn request_acknowledgements(&mut self) {
        Ctx::request_acknowledgements(self);
    }

    fn has_no_replicas(&mut self) -> bool {
        let mut is_zero = |field| self.info_number(c"replication", field) == Some(0);
        is_zero(c"connected_slaves") && is_zero(c"repl_backlog_active")
    }

    fn local_slots(&mut self) -> Option<LocalSlots> {
        location::local_slots(self)
    }

    fn is_cluster_down(&mut self) -> Option<bool> {
        location::is_down(self)
    }
}

impl<'h, 'a> OpenKey<'h, Ctx<'a>> for WriteKey<'h, 'a, LockValue> {
    fn value(&mut self) -> (Stored<&mut LockValue>, &mut EngineState) {
        let (value, state) = self.value_and(&STATE);
        let stored = match value {
            Value::Nothing => Stored::Nothing,
            Value::Ours(value) => Stored::Lock(value),
            Value::OtherType => Stored::OtherType,
        };
        (stored, &mut state.engine)
    }

    fn set(&mut self, value: Box<LockValue>) -> bool {
        self.set(value)
    }

    fn delete(&mut self) {
        self.delete();
    }

    fn persist(&mut self) {
        self.persist();
    }

    fn close(self) -> &'h mut Ctx<'a> {
        self.close()
    }
}

impl From<Flags> for engine::Flags {
    fn from(flags: Flags) -> Self {
        Self {
            is_replica: !flags.is_primary(),
            is_loading: flags.is_loading(),
            is_cluster: flags.is_cluster(),
            has_aof: flags.has_aof(),
            must_obey: flags.must_obey(),
            is_slot_import: flags.is_slot_import(),
        }
    }
}
