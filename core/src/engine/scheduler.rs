//! Background jobs: what the cron and the timers run, in order.
//!
//! - The cron of the server, `hz` times a second, runs all jobs, a slice of each.
//! - The slice timer goes on with them while there is more to do.
//! - The wait timer runs the inboxes and queues at the moment when something is due there.

use super::announcements::announce;
use super::host::{Flags, Host, Level, Process};
use super::pass::Pass;
use super::{checkpoint, due, held_back, inboxes, moved, restored, sweeper, wait_timer};
use crate::time::{Inputs, Instant};

/// The pause between slices, in which clients are served.
const PAUSE_MS: u64 = 1;
/// For locks that were restored.
const RESTORED_MS: u64 = 1;
const REFRESH_INTERVAL_MS: u64 = 1_000;
/// A grace period that is longer may be a mistake.
const LONG_GRACE_MS: u64 = 120_000;

/// The timer fires that [`Process::set_wait_timer`] has set.
pub fn on_wait_timer(host: &mut impl Host) {
    host.state().schedule.wait_timer = None;
    if let Some(pass) = Pass::begin(host) {
        let slice = pass.slice(RESTORED_MS, host);
        restored::adopt_stored(host, &slice);
        held_back::time_out(host);
        inboxes::process(host, &pass);
        due::process_due(host, &pass);
        pass.end(host);
    }
    wait_timer::arm(host);
}

/// The timer fires that [`Process::set_slice_timer`] has set.
pub fn on_slice_timer(host: &mut impl Host) {
    host.state().schedule.has_slice_timer = false;
    run_jobs(host);
}

/// Called by the cron and by the slice timer.
pub fn run_jobs(host: &mut impl Host) {
    let flags = host.flags();
    if flags.is_loading {
        return;
    }
    start_term(host, flags);
    let now = host.now();
    refresh_environment(host, flags, now);
    let may_write = flags.is_primary() && !host.is_paused();
    if may_write {
        checkpoint::send_if_due(host, now);
    }
    let more = match Pass::begin(host) {
        Some(pass) => run_slices(host, pass, flags, now),
        None => true,
    };
    if more {
        schedule_next_slice(host);
    }
}

/// Runs a slice of each job. Returns whether there is more to do, besides what the wait timer is armed for.
fn run_slices<H: Host>(host: &mut H, pass: Pass, flags: Flags, now: Instant) -> bool {
    let mut more = sweeper::lazy_free(host, &pass);
    inboxes::process(host, &pass);
    due::process_due(host, &pass);
    more |= moved::search(host, &pass);
    if flags.is_primary() && !host.is_paused() {
        more |= sweeper::expire_due_locks(host, &pass, flags, now);
    }
    pass.end(host);
    wait_timer::arm(host);
    more
}

/// Starts what is pending after a start or a promotion, and logs what has started, here or before a decision.
fn start_term<H: Host>(host: &mut H, flags: Flags) {
    let (now, environment) = (host.now(), host.environment());
    let inputs = Inputs {
        now,
        role: flags.role(),
        slot: None,
        must_encode: true,
        environment: &environment,
    };
    let state = host.state();
    state.server.tick(&inputs);
    let left_ms = state.server.grace.left_ms(now);
    if let Some((from, to)) = state.server.take_advance() {
        let notice = format!("start or promotion: the fence counter advanced from {from} to {to}");
        host.log(Level::Notice, &notice);
    }
    log_grace(host, flags, left_ms);
}

fn log_grace<H: Host>(host: &mut H, flags: Flags, left_ms: u64) {
    let state = host.state();
    let is_running = left_ms > 0;
    if std::mem::replace(&mut state.schedule.grace_logged, is_running) == is_running {
        return;
    }
    if !is_running && flags.is_primary() {
        state.server.grace_ended();
    }
    let (level, text) = match left_ms {
        0 => (
            Level::Notice,
            "grace period ended: locks are granted again".to_owned(),
        ),
        1..=LONG_GRACE_MS => (
            Level::Notice,
            format!("grace period began: no lock is granted for {left_ms} ms"),
        ),
        _ => (
            Level::Warning,
            format!(
                "grace period began: no lock is granted for {left_ms} ms, which is long. To end it, lower \
                 dlock.startup-grace-ms (after a start) or dlock.failover-grace-ms (after a promotion)"
            ),
        ),
    };
    host.log(level, &text);
}

/// Once a second: refreshes the replication targets and the slots of the cluster, and announces fences to its nodes.
fn refresh_environment<H: Host>(host: &mut H, flags: Flags, now: Instant) {
    if host.state().schedule.next_refresh > now {
        return;
    }
    host.state().schedule.next_refresh = now.after_ms(REFRESH_INTERVAL_MS);
    refresh_replication_targets(host);
    held_back::look_soon(host);
    if flags.is_cluster {
        refresh_slots(host, now);
        if flags.is_primary() {
            announce(host, true);
        }
    }
    let environment = host.environment();
    let state = host.state();
    // The setting is `yes` again, or there are locks again: the log has to catch up.
    let keeps_fence = state.keeps_fence(now, &environment);
    let kept_fence = std::mem::replace(&mut state.schedule.kept_fence, keeps_fence);
    state.server.checkpoint_due |= keeps_fence && !kept_fence;
    let dropped = std::mem::take(&mut state.schedule.dropped_waiters);
    if dropped > 0 {
        let notice = format!("{dropped} waiters got an error: their locks are not granted here any more");
        host.log(Level::Notice, &notice);
    }
}

/// Looks at the replicas again.
pub(super) fn refresh_replication_targets(host: &mut impl Host) {
    let has_no_replicas = host.has_no_replicas();
    host.state().replication_targets.has_no_replicas = has_no_replicas;
}

/// Looks at the slots of the cluster again, in the next pass of the server's loop.
pub(super) fn refresh_soon(process: &mut impl Process) {
    process.state().schedule.next_refresh = Instant::DISTANT_PAST;
    schedule_next_slice(process);
}

/// Waiters of slots that have left are dropped by the next runs of the queues.
fn refresh_slots(host: &mut impl Host, now: Instant) {
    if let Some(slots) = host.local_slots() {
        let (cluster, _) = host.state().server.cluster();
        let left = cluster.fences.retain_claims(&slots.settled);
        let has_changed = cluster.slots != slots;
        cluster.slots = slots;
        moved::refresh(host, has_changed);
        if left > 0 {
            let notice =
                format!("{left} cluster slots with locks have left this node, or are being migrated");
            host.log(Level::Notice, &notice);
        }
    }
    moved::walk(host, now);
}

/// Replicas and the AOF get the fence counter and the grace period in the next iteration of the event loop.
pub(super) fn request_checkpoint(process: &mut impl Process) {
    process.state().server.checkpoint_due = true;
    schedule_next_slice(process);
}

fn schedule_next_slice(process: &mut impl Process) {
    let has_timer = &mut process.state().schedule.has_slice_timer;
    if !std::mem::replace(has_timer, true) {
        process.set_slice_timer(PAUSE_MS);
    }
}
