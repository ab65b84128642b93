//! Cluster slots: which of them are here, and which node serves a key.

use dlock_core::cluster::nodes::{
    ADDRESS_SETTINGS, LocalSlots, SlotRange, has_single_address, is_importing, parse_cluster_nodes,
};
use dlock_core::cluster::slots::slot_of;

use crate::redis::Ctx;

/// The slots of this node, if the server says.
pub fn local_slots(ctx: &mut Ctx<'_>) -> Option<LocalSlots> {
    Some(LocalSlots::parse(&nodes(ctx)?))
}

/// Whether the cluster serves no keys, if the server says.
pub fn is_down(ctx: &mut Ctx<'_>) -> Option<bool> {
    let info = ctx.call_for_text(c"CLUSTER", &["INFO"])?;
    Some(!info.contains("cluster_state:ok"))
}

/// Which node serves a key.
pub enum Location {
    Here,
    /// This one, for requests after ASKING: the slot is being migrated to it.
    Importing,
    /// At an address that every client may be given.
    Elsewhere {
        slot: usize,
        address: String,
    },
    Unknown,
}

pub fn locate(ctx: &mut Ctx<'_>, key: &[u8]) -> Location {
    let slot = slot_of(key);
    let nodes = nodes(ctx).unwrap_or_default();
    if is_importing(&nodes, slot) {
        return Location::Importing;
    }
    let mut ranges = parse_cluster_nodes(&nodes).into_iter();
    match ranges.find(|range| range.slots.contains(&slot)) {
        Some(SlotRange { is_local: true, .. }) => Location::Here,
        Some(SlotRange {
            address: Some(address),
            ..
        }) if has_one_address_for_all(ctx) => Location::Elsewhere { slot, address },
        _ => Location::Unknown,
    }
}

/// Whether the server would name the same address of a node to all clients, which is then that of CLUSTER NODES.
fn has_one_address_for_all(ctx: &mut Ctx<'_>) -> bool {
    let arguments: Vec<&str> = std::iter::once("GET").chain(ADDRESS_SETTINGS).collect();
    let settings = ctx.call_for_texts(c"CONFIG", &arguments);
    settings.is_some_and(|settings| has_single_address(&settings))
}

/// Not CLUSTER SLOTS, which crashes Valkey 8.0 and 8.1 when it is called from a timer.
fn nodes(ctx: &mut Ctx<'_>) -> Option<String> {
    ctx.call_for_text(c"CLUSTER", &["NODES"])
}
