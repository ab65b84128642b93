//! The state of the module: one for the process.
//!
//! `ctx.state()` and [`module_state`] borrow the context. A call of the server needs that too, so that no callback finds
//! the state in use: see [`crate::redis`].

use dlock_core::engine::EngineState;

use crate::host::readers::Readers;
use crate::redis::{Gil, GilCell, Timer};

/// What the module knows.
#[derive(Default)]
pub struct ModuleState {
    pub engine: EngineState,
    /// The clients that wait for a reply.
    pub readers: Readers,
    /// For what is due in the queues.
    pub wait_timer: Option<Timer>,
}

pub static STATE: GilCell<ModuleState> = GilCell::new();

/// The part that the engine does not know is reached through a [`Gil`], and so through each context.
pub fn module_state<'g>(gil: &'g mut Gil<'_>) -> &'g mut ModuleState {
    STATE.get(gil)
}
