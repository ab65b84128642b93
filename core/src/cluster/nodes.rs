//! Which node serves which slots, from the server's replies to CLUSTER NODES and CONFIG GET.

use std::ops::RangeInclusive;

use super::slots::SlotSet;

/// Slots and the node that serves them.
#[derive(Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// The slots.
    pub slots: RangeInclusive<usize>,
    /// Whether this server serves them.
    pub is_local: bool,
    /// The address of the node, `None` while the cluster does not know it.
    pub address: Option<String>,
}

/// The slots that are served, from the reply to CLUSTER NODES. Each line is
/// `id ip:port@bus-port flags primary ping pong epoch link range...`, where a range is `5`, `5-9`, or something in
/// brackets about a slot that is being migrated.
pub fn parse_cluster_nodes(nodes: &str) -> Vec<SlotRange> {
    nodes.lines().flat_map(ranges_of).collect()
}

/// What a server knows about its own slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalSlots {
    /// Those that it owns.
    pub owned: SlotSet,
    /// Those of them that are not on the move. A slot that is being migrated away is also served by another node.
    pub settled: SlotSet,
    /// Those of other nodes that are being migrated to it: it serves them to clients that were sent here.
    pub importing: SlotSet,
}

impl LocalSlots {
    /// From the reply to CLUSTER NODES, in which `[93->-id]` is a slot that is being migrated away.
    pub fn parse(nodes: &str) -> Self {
        let ranges = parse_cluster_nodes(nodes).into_iter();
        let local = ranges.filter(|range| range.is_local);
        let owned: SlotSet = local.flat_map(|range| range.slots).collect();
        let mut settled = owned.clone();
        settled.subtract(&on_the_move(nodes, "->-").collect());
        Self {
            owned,
            settled,
            importing: on_the_move(nodes, "-<-").collect(),
        }
    }

    /// Whether clients may wait in this slot here.
    pub fn serves(&self, slot: usize) -> bool {
        self.owned.contains(slot) || self.importing.contains(slot)
    }
}

/// Whether this server serves a slot that still belongs to another node, from the same reply: `[93-<-id]`.
pub fn is_importing(nodes: &str, slot: usize) -> bool {
    on_the_move(nodes, "-<-").any(|importing| importing == slot)
}

fn on_the_move<'a>(nodes: &'a str, direction: &'a str) -> impl Iterator<Item = usize> + 'a {
    let words = nodes.split([' ', '\n']).filter_map(|word| word.strip_prefix('['));
    words.filter_map(move |word| word.split_once(direction)?.0.parse().ok())
}

fn ranges_of(node: &str) -> Vec<SlotRange> {
    let fields: Vec<&str> = node.split(' ').collect();
    let [_, endpoint, flags, _, _, _, _, _, ranges @ ..] = fields.as_slice() else {
        return Vec::new();
    };
    let is_local = flags.split(',').any(|flag| flag == "myself");
    let address = endpoint
        .split('@')
        .next()
        .filter(|address| !address.starts_with(':'));
    let range = |range: &&str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let slots = first.parse().ok()?..=last.parse().ok()?;
        Some(SlotRange {
            slots,
            is_local,
            address: address.map(str::to_owned),
        })
    };
    ranges.iter().filter_map(range).collect()
}

/// The settings that [`has_single_address`] needs.
pub const ADDRESS_SETTINGS: [&str; 6] = [
    "cluster-preferred-endpoint-type",
    "port",
    "tls-port",
    "tls-cluster",
    "cluster-announce-client-ipv4",
    "cluster-announce-client-ipv6",
];

/// Whether all clients know a node by the same address, which is then the one of CLUSTER NODES. `settings`: names
/// and values, alternating. A server without TLS has no settings for it, and only Valkey announces addresses to
/// clients.
pub fn has_single_address(settings: &[String]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_nodes_line_yields_ranges_without_migrating_slots() {
        let line =
            "e7d1 127.0.0.1:30001@31001,host myself,master - 0 14260 1 connected 0-5460 7000 [93-<-07c3]";
        let range = |slots, is_local, address: Option<&str>| SlotRange {
            slots,
            is_local,
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
    fn slots_on_the_move_are_not_settled() {
        let nodes = "e7d1 127.0.0.1:1@2 myself,master - 0 1 1 connected 0-5 [3->-07c3] [9-<-07c3]\n\
                     07c3 127.0.0.1:3@4 master - 0 1 2 connected 6-9\n";
        let slots = LocalSlots::parse(nodes);
        assert_eq!(slots.owned, (0..=5).collect());
        assert_eq!(slots.settled, [0, 1, 2, 4, 5].into_iter().collect());
        assert!(slots.owned.contains(3) && !slots.settled.contains(3));
        assert!(is_importing(nodes, 9) && !is_importing(nodes, 3));
    }

    #[test]
    fn single_address_requires_ip_endpoints_and_no_mixed_tls() {
        let settings = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let is_for_all = |text: &str| has_single_address(&settings(text));
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
}
