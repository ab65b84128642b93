use std::collections::HashMap;
use std::sync::Mutex;

use crc::{CRC_16_XMODEM, Crc};
use redis::{ConnectionAddr, ConnectionInfo, RedisError};

use crate::sync::lock;

const SLOTS: u16 = 16_384;
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Which node serves a slot, as far as nodes have told: for connections to one node only.
pub(super) struct Slots {
    /// The nodes that the application names, one at least. They differ in their places only.
    named: Vec<ConnectionInfo>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_slot: HashMap<u16, ConnectionAddr>,
    /// All places that nodes have told of. A cluster may have moved away from all that are named.
    told: Vec<ConnectionAddr>,
    /// Where to ask for a slot that is not known: an index into the named places and, behind them, the told ones.
    turn: usize,
}

impl Slots {
    /// There must be one node at least.
    pub fn new(named: Vec<ConnectionInfo>) -> Self {
        Self {
            named,
            known: Mutex::default(),
        }
    }

    pub fn first(&self) -> &ConnectionInfo {
        &self.named[0]
    }

    /// The node that serves the key, if that is known; else one that can tell.
    pub fn place(&self, key: &[u8]) -> ConnectionInfo {
        let known = lock(&self.known);
        let addr = match known.by_slot.get(&slot_of(key)) {
            Some(addr) => addr,
            None => self.whose_turn(&known),
        };
        self.first().clone().set_addr(addr.clone())
    }

    fn whose_turn<'a>(&'a self, known: &'a Known) -> &'a ConnectionAddr {
        match self.named.get(known.turn) {
            Some(named) => named.addr(),
            None => &known.told[known.turn - self.named.len()],
        }
    }

    /// Learns from `MOVED slot host:port`, as a node told it.
    pub fn learn(&self, error: &RedisError, teller: &ConnectionAddr) {
        let told = error.redirect_node().filter(|_| error.code() == Some("MOVED"));
        if let Some((place, slot)) = told
            && let Some(addr) = at(teller, place)
        {
            self.note(slot, addr);
        }
    }

    fn note(&self, slot: u16, addr: ConnectionAddr) {
        let mut known = lock(&self.known);
        if !known.told.contains(&addr) && self.named.iter().all(|named| *named.addr() != addr) {
            known.told.push(addr.clone());
        }
        known.by_slot.insert(slot, addr);
    }

    /// A node cannot be reached: others may serve its slots by now, and others are to be asked.
    pub fn forget(&self, node: &ConnectionAddr) {
        let mut known = lock(&self.known);
        if self.whose_turn(&known) == node {
            known.turn += 1;
        }
        known.by_slot.retain(|_, addr| addr != node);
        known.told.retain(|addr| addr != node);
        known.turn %= self.named.len() + known.told.len();
    }
}

/// The address of `host:port`, reached as the node is that told of it.
fn at(teller: &ConnectionAddr, place: &str) -> Option<ConnectionAddr> {
    let (host, port) = place.rsplit_once(':')?;
    let mut addr = teller.clone();
    if let ConnectionAddr::Tcp(its_host, its_port)
    | ConnectionAddr::TcpTls {
        host: its_host,
        port: its_port,
        ..
    } = &mut addr
    {
        // A node that does not know its own name leaves it out.
        if !host.is_empty() {
            host.clone_into(its_host);
        }
        *its_port = port.parse().ok()?;
    }
    Some(addr)
}

/// The slot of a key: only what stands in its first braces counts, if anything does.
fn slot_of(key: &[u8]) -> u16 {
    let braces = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let length = key[open + 1..].iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &key[open + 1..][..length])
    });
    CRC.checksum(braces.unwrap_or(key)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(nodes: &[&str]) -> Slots {
        let parse = |node: &&str| format!("redis://:secret@{node}/").parse().unwrap();
        Slots::new(nodes.iter().map(parse).collect())
    }

    fn addr(node: &str) -> ConnectionAddr {
        at(&ConnectionAddr::Tcp(String::new(), 0), node).unwrap()
    }

    fn place(slots: &Slots, key: &str) -> String {
        slots.place(key.as_bytes()).addr().to_string()
    }

    #[test]
    fn the_slot_of_a_key_is_the_one_that_servers_compute() {
        // As told by CLUSTER KEYSLOT.
        let cases: [(&str, u16); 5] = [
            ("", 0),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("a{foo}b{c}", 12_182),
            ("{}foo", 9_500),
        ];
        for (key, slot) in cases {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn what_a_node_tells_of_a_slot_is_used_for_its_keys() {
        let slots = named(&["one:7000"]);
        assert_eq!(place(&slots, "foo"), "one:7000");
        slots.note(12_182, addr("two:7001"));
        assert_eq!(place(&slots, "foo"), "two:7001");
        assert_eq!(place(&slots, "bar"), "one:7000");
    }

    #[test]
    fn a_node_that_leaves_its_name_out_means_the_one_by_which_it_was_reached() {
        assert_eq!(at(&addr("two:7001"), ":7002"), Some(addr("two:7002")));
        assert_eq!(at(&addr("two:7001"), "three:7002"), Some(addr("three:7002")));
        assert_eq!(at(&addr("two:7001"), "nonsense"), None);
    }

    #[test]
    fn a_node_that_cannot_be_reached_is_asked_no_more_while_there_is_another() {
        let slots = named(&["one:7000", "two:7001"]);
        slots.note(12_182, addr("three:7002"));
        slots.forget(&addr("one:7000"));
        assert_eq!(place(&slots, "bar"), "two:7001");
        slots.forget(&addr("two:7001"));
        assert_eq!(place(&slots, "bar"), "three:7002");
        slots.forget(&addr("three:7002"));
        // What was named is tried again, what was told is gone.
        assert_eq!(place(&slots, "foo"), "two:7001");
        slots.forget(&addr("two:7001"));
        assert_eq!(place(&slots, "foo"), "one:7000");
    }

    #[test]
    fn the_loss_of_another_node_does_not_change_whom_to_ask() {
        let slots = named(&["one:7000"]);
        slots.note(12_182, addr("two:7001"));
        slots.forget(&addr("two:7001"));
        assert_eq!(place(&slots, "foo"), "one:7000");
    }
}
