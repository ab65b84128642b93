//! Sends a change to replicas and the append-only file.

use super::host::Host;
use crate::effects::Effects;

/// Sends the encoded change. One that is not encoded is the running command itself: what a replica has received, or what
/// the server only counts for its next snapshot, and then discards.
pub(super) fn replicate<H: Host>(host: &mut H, name: H::Name<'_>, effects: &Effects) {
    if !effects.is_changed {
        return;
    }
    match effects.change() {
        Some(change) => host.replicate(name, change),
        None => host.replicate_verbatim(),
    }
    if effects.changes_holders() {
        host.signal_modified(name);
    }
}
