//! Background jobs: what the cron and the timers run, in order.
//!
//! - The cron of the server, `hz` times a second, runs all jobs, a slice of each.
//! - The slice timer goes on with them while there is more to do.
//! - The wait timer runs the inboxes and queues at the moment when something is due there.

use dlock_core::Instant;

use crate::background::pass::Pass;
use crate::background::{checkpoint, due, inboxes, moved, sweeper};
use crate::change::restored;
use crate::redis::{Ctx, Flags, Timer, log};
use crate::state::clock;
use crate::state::cluster::fences;
use crate::state::cluster::location::local_slots;
use crate::state::inputs::inputs;
use crate::state::module_state::HasState;
use crate::state::{replication_targets, wait_timer};

/// The pause between slices, in which clients are served.
const PAUSE_MS: u64 = 1;
/// For locks that were restored.
const RESTORED_MS: u64 = 1;
const REFRESH_INTERVAL_MS: u64 = 1_000;
/// A grace period that is longer may be a mistake.
const LONG_GRACE_MS: u64 = 120_000;

pub fn on_wait_timer(ctx: &mut Ctx<'_>) {
    // First of all: a timer that fires must not be stopped.
    ctx.state().schedule.wait_timer = None;
    if let Some(pass) = Pass::begin(ctx) {
        restored::observe_stored(ctx, &pass.slice(RESTORED_MS));
        inboxes::process(ctx, &pass);
        due::process_due(ctx, &pass);
        pass.end(ctx);
    }
    wait_timer::arm(ctx);
}

fn on_slice_timer(ctx: &mut Ctx<'_>) {
    ctx.state().schedule.slice_timer = None;
    run_jobs(ctx);
}

/// Called by the cron and by the slice timer.
pub fn run_jobs(ctx: &mut Ctx<'_>) {
    let flags = ctx.flags();
    if flags.is_loading() {
        return;
    }
    start_term(ctx, flags);
    let now = clock::now();
    refresh_environment(ctx, flags, now);
    let may_write = flags.is_primary() && !ctx.is_paused();
    if may_write {
        checkpoint::send_if_due(ctx, now);
    }
    let more = match Pass::begin(ctx) {
        Some(pass) => run_slices(ctx, pass, flags, now),
        None => true,
    };
    if more {
        schedule_next_slice(ctx);
    }
}

/// Runs a slice of each job. Returns whether there is more to do, besides what the wait timer is armed for.
fn run_slices(ctx: &mut Ctx<'_>, pass: Pass, flags: Flags, now: Instant) -> bool {
    let mut more = sweeper::lazy_free(ctx, &pass);
    inboxes::process(ctx, &pass);
    due::process_due(ctx, &pass);
    more |= moved::search(ctx, &pass);
    if flags.is_primary() && !ctx.is_paused() {
        more |= sweeper::expire_due_locks(ctx, &pass, flags, now);
    }
    pass.end(ctx);
    wait_timer::arm(ctx);
    more
}

/// Starts what is pending after a start or a promotion, and logs what has started, here or before a decision.
fn start_term(ctx: &mut Ctx<'_>, flags: Flags) {
    let inputs = inputs(flags, None, true);
    let state = ctx.state();
    state.server.tick(&inputs);
    if let Some((from, to)) = state.server.take_advance() {
        log::notice(&format!(
            "start or promotion: the fence counter advanced from {from} to {to}"
        ));
    }
    let left_ms = state.server.grace.left_ms(inputs.now);
    if state.schedule.grace_logged != (left_ms > 0) {
        state.schedule.grace_logged = left_ms > 0;
        match left_ms {
            0 => {
                if flags.is_primary() {
                    state.server.grace_ended();
                }
                log::notice("grace period ended: locks are granted again");
            }
            1..=LONG_GRACE_MS => log::notice(&format!(
                "grace period began: no lock is granted for {left_ms} ms"
            )),
            _ => log::warning(&format!(
                "grace period began: no lock is granted for {left_ms} ms, which is long. To end it, lower \
                 dlock.startup-grace-ms (after a start) or dlock.failover-grace-ms (after a promotion)"
            )),
        }
    }
}

/// Once a second: refreshes the replication targets and the slots of the cluster, and announces fences to its nodes.
fn refresh_environment(ctx: &mut Ctx<'_>, flags: Flags, now: Instant) {
    if ctx.state().schedule.next_refresh > now {
        return;
    }
    ctx.state().schedule.next_refresh = now.after_ms(REFRESH_INTERVAL_MS);
    ctx.state().readers.forget_unblocked();
    refresh_replication_targets(ctx);
    if flags.is_cluster() {
        refresh_slots(ctx, now);
        if flags.is_primary() {
            fences::announce(ctx, true);
        }
    }
    let state = ctx.state();
    // The setting is `yes` again, or there are locks again: the log has to catch up.
    let keeps_fence = state.keeps_fence();
    let kept_fence = std::mem::replace(&mut state.schedule.kept_fence, keeps_fence);
    state.server.checkpoint_due |= keeps_fence && !kept_fence;
    let dropped = std::mem::take(&mut state.schedule.dropped_waiters);
    if dropped > 0 {
        log::notice(&format!(
            "{dropped} waiters got an error: their locks are not granted here any more"
        ));
    }
}

pub fn refresh_replication_targets(ctx: &mut Ctx<'_>) {
    let has_no_replicas = replication_targets::has_no_replicas(ctx);
    ctx.state().replication_targets.has_no_replicas = has_no_replicas;
}

/// Looks at the slots of the cluster again, in the next pass of the server's loop.
pub fn refresh_soon(ctx: &mut Ctx<'_>) {
    ctx.state().schedule.next_refresh = Instant::DISTANT_PAST;
    schedule_next_slice(ctx);
}

/// Waiters of slots that have left are dropped by the next runs of the queues.
fn refresh_slots(ctx: &mut Ctx<'_>, now: Instant) {
    if let Some(slots) = local_slots(ctx) {
        let (cluster, _) = ctx.state().server.cluster();
        let left = cluster.fences.retain_claims(&slots.settled);
        let has_changed = cluster.slots != slots;
        cluster.slots = slots;
        moved::refresh(ctx, has_changed);
        if left > 0 {
            log::notice(&format!(
                "{left} cluster slots with locks have left this node, or are being migrated"
            ));
        }
    }
    moved::walk(ctx, now);
}

/// Replicas and the AOF get the fence counter and the grace period in the next iteration of the event loop.
pub fn request_checkpoint(ctx: &mut Ctx<'_>) {
    ctx.state().server.checkpoint_due = true;
    schedule_next_slice(ctx);
}

fn schedule_next_slice(ctx: &mut Ctx<'_>) {
    if ctx.state().schedule.slice_timer.is_none() {
        let timer = Timer::set(ctx, PAUSE_MS, on_slice_timer);
        ctx.state().schedule.slice_timer = Some(timer);
    }
}
