//! What the module does without being asked, and in which order.
//!
//! - The cron of the server, `hz` times a second, runs all jobs, a slice of each.
//! - The slice timer goes on with them while there is more to do.
//! - The wait timer runs the queues at the moment when something is due there.

use dlock_core::Instant;

use crate::background::checkpoint;
use crate::background::due;
use crate::background::keyspace_scan;
use crate::background::sweeper;
use crate::change::restored;
use crate::redis::{Ctx, Flags, Timer, clock, log};
use crate::state::cluster;
use crate::state::fences;
use crate::state::footprint;
use crate::state::replication_targets::ReplicationTargets;

/// The pause between slices, in which clients are served.
const PAUSE_MS: u64 = 1;
const REFRESH_INTERVAL_MS: u64 = 1_000;

pub fn on_cron(ctx: &mut Ctx<'_>) {
    run_jobs(ctx);
}

pub fn on_wait_timer(ctx: &mut Ctx<'_>) {
    // First of all: a timer that fires must not be stopped.
    ctx.state().schedule.wait_timer = None;
    restored::track(ctx);
    due::process_due(ctx);
}

fn on_slice_timer(ctx: &mut Ctx<'_>) {
    ctx.state().schedule.slice_timer = None;
    run_jobs(ctx);
}

fn run_jobs(ctx: &mut Ctx<'_>) {
    let flags = ctx.flags();
    if flags.is_loading() {
        return;
    }
    let now = clock::now();
    start_term(ctx, flags, now);
    refresh_environment(ctx, flags, now);
    let mut more = keyspace_scan::find_untracked(ctx, now);
    more |= sweeper::lazy_free(ctx, now);
    due::process_due(ctx);
    if flags.is_primary() && !ctx.is_paused() {
        checkpoint::send_if_due(ctx, now);
        more |= sweeper::expire_due_locks(ctx, flags, now);
    }
    if more {
        schedule_next_slice(ctx);
    }
}

/// What is pending after a start or a promotion: the grace period and the fence counter.
fn start_term(ctx: &mut Ctx<'_>, flags: Flags, now: Instant) {
    let state = ctx.state();
    state.start_pending_grace(flags, now);
    state.log_grace(now);
    if flags.is_primary() {
        fences::advance_if_due(state, now);
    }
}

/// Once a second: refreshes the replication targets and the slots of the cluster, and announces fences to its nodes.
fn refresh_environment(ctx: &mut Ctx<'_>, flags: Flags, now: Instant) {
    if ctx.state().schedule.next_refresh > now {
        return;
    }
    ctx.state().schedule.next_refresh = now.after_ms(REFRESH_INTERVAL_MS);
    ReplicationTargets::refresh(ctx);
    footprint::refresh(ctx);
    if flags.is_cluster() {
        refresh_slots(ctx);
        if flags.is_primary() {
            fences::announce(ctx, true);
        }
    }
    let dropped = std::mem::take(&mut ctx.state().schedule.dropped_waiters);
    if dropped > 0 {
        log::notice(&format!(
            "{dropped} waiters got an error: their locks are not granted here any more"
        ));
    }
}

/// Looks at the slots of the cluster again, in the next pass of the server's loop.
pub fn refresh_soon(ctx: &mut Ctx<'_>) {
    ctx.state().schedule.next_refresh = Instant::DISTANT_PAST;
    schedule_next_slice(ctx);
}

/// Waiters of slots that have left are dropped by the next run of the queues.
fn refresh_slots(ctx: &mut Ctx<'_>) {
    if let Some(slots) = cluster::local_slots(ctx) {
        let state = ctx.state();
        let left = state.cluster_fences.retain_claims(&slots.settled);
        state.local_slots = slots;
        if left > 0 {
            log::notice(&format!(
                "{left} cluster slots with locks have left this node, or are being migrated"
            ));
        }
    }
    ctx.state()
        .engine
        .wait_table
        .schedule_db(None, Instant::DISTANT_PAST);
}

/// Replicas and the AOF get the fence counter and the grace period in the next iteration of the event loop.
pub fn request_checkpoint(ctx: &mut Ctx<'_>) {
    ctx.state().engine.checkpoint_due = true;
    schedule_next_slice(ctx);
}

fn schedule_next_slice(ctx: &mut Ctx<'_>) {
    if ctx.state().schedule.slice_timer.is_none() {
        let timer = Timer::set(ctx, clock::now().after_ms(PAUSE_MS), on_slice_timer);
        ctx.state().schedule.slice_timer = Some(timer);
    }
}
