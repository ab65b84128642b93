//! Announcements between the nodes of a cluster, by which fences rise when a slot moves.

use super::host::{Host, Process};
use crate::cluster::fences::{Announcement, NodeId};
use crate::time::Environment;

/// Sends the other nodes what they must know about the fences of this one. `periodic`: in any case.
pub(super) fn announce(host: &mut impl Host, periodic: bool) {
    let now = host.now();
    let (cluster, fences) = host.state().server.cluster();
    if let Some(announcement) = cluster.fences.announce(fences, periodic, now) {
        host.broadcast(&announcement.encode());
    }
}

/// Another node has sent such a message.
pub fn receive(process: &mut impl Process, sender: NodeId, message: &[u8]) {
    if let Some(announcement) = Announcement::decode(message) {
        let (now, wall_clock) = (process.now(), process.environment().wall_clock());
        let (cluster, fences) = process.state().server.cluster();
        cluster
            .fences
            .receive(sender, &announcement, fences, wall_clock, now);
    }
}
