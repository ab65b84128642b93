//! Cluster slots: which of them are here, and which node serves a key.

use dlock_core::cluster_slots::{
    ADDRESS_SETTINGS, SlotRange, SlotSet, has_single_address, parse_cluster_nodes, slot_of,
};

use crate::redis::Ctx;

/// The slots that this node serves, if the server says.
pub fn local_slots(ctx: &mut Ctx<'_>) -> Option<SlotSet> {
    let mut local = SlotSet::EMPTY;
    let ranges = ranges(ctx)?.into_iter().filter(|range| range.is_local);
    for slot in ranges.flat_map(|range| range.slots) {
        local.insert(slot);
    }
    Some(local)
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

/// All slots that are served. CLUSTER NODES, because CLUSTER SLOTS from a timer crashes Valkey 8.0 and 8.1.
fn ranges(ctx: &mut Ctx<'_>) -> Option<Vec<SlotRange>> {
    let nodes = ctx.call_for_text(c"CLUSTER", &["NODES"])?;
    Some(parse_cluster_nodes(&nodes))
}
