//! Cluster slots: which of them are here, and which node serves a key.

use std::ops::RangeInclusive;

use crate::redis::Ctx;
use crc::{CRC_16_XMODEM, Crc};

const SLOTS: usize = 16_384;
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = SLOTS / WORD_BITS;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slots for which the fence counter has advanced since they came here.
pub struct RaisedSlots([u64; WORDS]);

impl RaisedSlots {
    pub const fn none() -> Self {
        Self([0; WORDS])
    }

    /// Adds a slot; whether it was not in the set.
    pub fn insert(&mut self, slot: usize) -> bool {
        let Some(word) = self.0.get_mut(slot.div_euclid(WORD_BITS)) else {
            return false;
        };
        let bit = 1_u64.rotate_left(slot.rem_euclid(WORD_BITS) as u32);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes all that `other` has not; how many.
    pub fn keep_only(&mut self, other: &Self) -> u32 {
        let mut removed = 0_u32;
        for (word, other) in self.0.iter_mut().zip(other.0) {
            removed = removed.saturating_add((*word & !other).count_ones());
            *word &= other;
        }
        removed
    }
}

/// The slots that this node serves, if the server says.
pub fn slots_here(ctx: &mut Ctx<'_>) -> Option<RaisedSlots> {
    let ranges = ranges(ctx)?;
    let mut here = RaisedSlots::none();
    for slot in ranges
        .into_iter()
        .filter(|range| range.is_here)
        .flat_map(|range| range.slots)
    {
        here.insert(slot);
    }
    Some(here)
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
    match ranges(ctx)
        .into_iter()
        .flatten()
        .find(|range| range.slots.contains(&slot))
    {
        Some(Range { is_here: true, .. }) => Location::Here,
        Some(Range {
            address: Some(address),
            ..
        }) if has_one_address_for_all(ctx) => Location::Elsewhere { slot, address },
        _ => Location::Unknown,
    }
}

/// The slot of a key: of what stands between its first braces, if that is not empty, else of all of it.
pub fn slot_of(key: &[u8]) -> usize {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open.checked_add(1)?..)?;
        let length = rest
            .iter()
            .position(|byte| *byte == b'}')
            .filter(|length| *length > 0)?;
        rest.get(..length)
    });
    usize::from(CRC.checksum(tag.unwrap_or(key))).rem_euclid(SLOTS)
}

/// Slots and the node that serves them.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    slots: RangeInclusive<usize>,
    is_here: bool,
    /// `None` while the cluster does not know it.
    address: Option<String>,
}

/// Whether the server would name the same address of a node to all clients, which is then that of CLUSTER NODES.
fn has_one_address_for_all(ctx: &mut Ctx<'_>) -> bool {
    const ARGUMENTS: &[&str] = &[
        "GET",
        "cluster-preferred-endpoint-type",
        "port",
        "tls-port",
        "tls-cluster",
        "cluster-announce-client-ipv4",
        "cluster-announce-client-ipv6",
    ];
    let settings = ctx.call_for_texts(c"CONFIG", ARGUMENTS);
    settings.is_some_and(|settings| is_one_address_for_all(&settings))
}

/// The settings are names and values, in turn. A server without TLS has none for it, and only Valkey has addresses
/// for clients.
fn is_one_address_for_all(settings: &[String]) -> bool {
    let value = |name: &str, default| {
        let mut settings = settings.chunks_exact(2);
        let found = settings.find_map(|setting| match setting {
            [found, value] if found == name => Some(value.as_str()),
            _ => None,
        });
        found.unwrap_or(default)
    };
    let by_address = value("cluster-preferred-endpoint-type", "") == "ip";
    let without_tls = value("tls-port", "0") == "0";
    let only_tls = value("port", "") == "0" && value("tls-cluster", "no") == "yes";
    let none_for_clients = ["cluster-announce-client-ipv4", "cluster-announce-client-ipv6"]
        .iter()
        .all(|name| value(name, "").is_empty());
    by_address && none_for_clients && (without_tls || only_tls)
}

/// All slots that are served. CLUSTER NODES, because CLUSTER SLOTS from a timer crashes Valkey 8.0 and 8.1.
fn ranges(ctx: &mut Ctx<'_>) -> Option<Vec<Range>> {
    let nodes = ctx.call_for_text(c"CLUSTER", &["NODES"])?;
    Some(nodes.lines().flat_map(ranges_of).collect())
}

/// One line: `id ip:port@bus-port flags primary ping pong epoch link range...`, where a range is `5`, `5-9`,
/// or something in brackets about a slot that is on the move.
fn ranges_of(node: &str) -> Vec<Range> {
    let fields: Vec<&str> = node.split(' ').collect();
    let [_, endpoint, flags, _, _, _, _, _, ranges @ ..] = fields.as_slice() else {
        return Vec::new();
    };
    let is_here = flags.split(',').any(|flag| flag == "myself");
    let address = endpoint
        .split('@')
        .next()
        .filter(|address| !address.starts_with(':'));
    let range = |range: &&str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let slots = first.parse().ok()?..=last.parse().ok()?;
        Some(Range {
            slots,
            is_here,
            address: address.map(str::to_owned),
        })
    };
    ranges.iter().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(
            slot_of(b"foo{}{bar}"),
            usize::from(CRC.checksum(b"foo{}{bar}")) % SLOTS
        );
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"open{"), usize::from(CRC.checksum(b"open{")) % SLOTS);
    }

    #[test]
    fn the_ranges_of_a_node_are_read_and_slots_on_the_move_passed_over() {
        let line =
            "e7d1 127.0.0.1:30001@31001,host myself,master - 0 14260 1 connected 0-5460 7000 [93-<-07c3]";
        let range = |slots, is_here, address: Option<&str>| Range {
            slots,
            is_here,
            address: address.map(Into::into),
        };
        let address = Some("127.0.0.1:30001");
        assert_eq!(
            ranges_of(line),
            [range(0..=5460, true, address), range(7000..=7000, true, address)]
        );
        let unknown = "07c3 :0@0 master,noaddr - 0 0 2 disconnected 5461-5462";
        assert_eq!(ranges_of(unknown), [range(5461..=5462, false, None)]);
        assert_eq!(
            ranges_of("e7d1 127.0.0.1:30004@31004 slave e7d1 0 1 4 connected"),
            []
        );
        assert_eq!(ranges_of("nonsense"), []);
    }

    #[test]
    fn an_address_is_for_all_unless_some_clients_use_tls_or_nodes_are_known_by_names() {
        let settings = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let is_for_all = |text: &str| is_one_address_for_all(&settings(text));
        let by_ip = "cluster-preferred-endpoint-type ip";
        assert!(is_for_all(&format!("port 7000 {by_ip}")), "a server without TLS");
        assert!(is_for_all(&format!(
            "{by_ip} port 7000 tls-port 0 tls-cluster no"
        )));
        assert!(is_for_all(&format!(
            "{by_ip} port 0 tls-port 7000 tls-cluster yes"
        )));
        assert!(!is_for_all(&format!(
            "{by_ip} port 7000 tls-port 7001 tls-cluster yes"
        )));
        assert!(!is_for_all(&format!(
            "{by_ip} port 7000 tls-port 7001 tls-cluster no"
        )));
        assert!(!is_for_all(&format!(
            "{by_ip} port 0 tls-port 7001 tls-cluster no"
        )));
        assert!(!is_for_all("cluster-preferred-endpoint-type hostname port 7000"));
        assert!(!is_for_all(
            "cluster-preferred-endpoint-type unknown-endpoint port 7000"
        ));
        assert!(is_for_all(&format!(
            "port 7000 {by_ip} cluster-announce-client-ipv4 "
        )));
        assert!(!is_for_all(&format!(
            "port 7000 {by_ip} cluster-announce-client-ipv4 10.0.0.1"
        )));
        assert!(!is_for_all(""), "a server that does not say");
    }

    #[test]
    fn a_slot_is_new_once_until_it_has_left() {
        let mut slots = RaisedSlots::none();
        assert!(slots.insert(0) && slots.insert(16_383) && !slots.insert(0));
        let mut here = RaisedSlots::none();
        here.insert(16_383);
        slots.keep_only(&here);
        assert!(slots.insert(0) && !slots.insert(16_383));
    }
}
