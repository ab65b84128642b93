//! Cluster slots: which of them are here, and which node serves a key.

use dlock_core::cluster_slots::{
    ADDRESS_SETTINGS, SlotRange, SlotSet, has_single_address, parse_cluster_nodes, settled_slots, slot_of,
};

use crate::redis::Ctx;

/// The slots that this node serves and that are not on the move, if the server says.
pub fn settled(ctx: &mut Ctx<'_>) -> Option<SlotSet> {
    Some(settled_slots(&nodes(ctx)?))
}

/// Which node serves a key.
pub enum Location {
    Here,
    /// At an address that every client may be given.
    Elsewhere {
        slot: usize,
        address: String,
    },
    Unknown,
}

pub fn locate(ctx: &mut Ctx<'_>, key: &[u8]) -> Location {
    let slot = slot_of(key);
    let mut ranges = ranges(ctx).into_iter().flatten();
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

/// All slots that are served.
fn ranges(ctx: &mut Ctx<'_>) -> Option<Vec<SlotRange>> {
    Some(parse_cluster_nodes(&nodes(ctx)?))
}

/// Not CLUSTER SLOTS, which crashes Valkey 8.0 and 8.1 when it is called from a timer.
fn nodes(ctx: &mut Ctx<'_>) -> Option<String> {
    ctx.call_for_text(c"CLUSTER", &["NODES"])
}
