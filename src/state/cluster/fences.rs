//! Announcements between the nodes of a cluster, by which fences rise when a slot moves.

use dlock_core::cluster::fences::{Announcement, NodeId};

use crate::redis::Ctx;
use crate::state::clock;
use crate::state::module_state::{HasState, ModuleState};

/// The type of these messages on the bus of the cluster.
pub const MESSAGE_TYPE: u8 = 211;

/// Sends the other nodes what they must know about the fences of this one. `periodic`: in any case.
pub fn announce(ctx: &mut Ctx<'_>, periodic: bool) {
    let (cluster, fences) = ctx.state().server.cluster();
    if let Some(announcement) = cluster.fences.announce(fences, periodic, clock::now()) {
        ctx.broadcast(MESSAGE_TYPE, &announcement.encode());
    }
}

/// Another node has sent such a message.
pub fn receive(state: &mut ModuleState, sender: NodeId, message: &[u8]) {
    if let Some(announcement) = Announcement::decode(message) {
        let (cluster, fences) = state.server.cluster();
        let fences_of_peers = &mut cluster.fences;
        fences_of_peers.receive(sender, &announcement, fences, clock::wall_clock(), clock::now());
    }
}
