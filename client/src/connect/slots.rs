use std::collections::HashMap;
use std::sync::Mutex;

use crc::{CRC_16_XMODEM, Crc};
use redis::{ConnectionAddr, ConnectionInfo, RedisError};

use crate::sync::lock;

const SLOTS: u16 = 16_384;
const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Which node serves a slot, as far as nodes have told: for connections to one node only.
#[derive(Default)]
pub(super) struct Slots {
    known: Mutex<HashMap<u16, (String, u16)>>,
}

impl Slots {
    /// `any`, but at the place that serves the key if that is known.
    pub fn place(&self, any: ConnectionInfo, key: &[u8]) -> ConnectionInfo {
        let Some((host, port)) = lock(&self.known).get(&slot_of(key)).cloned() else {
            return any;
        };
        let mut addr = any.addr().clone();
        if let ConnectionAddr::Tcp(its_host, its_port)
        | ConnectionAddr::TcpTls {
            host: its_host,
            port: its_port,
            ..
        } = &mut addr
        {
            // A node that does not know its own name leaves it out.
            if !host.is_empty() {
                *its_host = host;
            }
            *its_port = port;
        }
        any.set_addr(addr)
    }

    /// Learns from `MOVED slot host:port`.
    pub fn learn(&self, error: &RedisError) {
        let told = error.redirect_node().filter(|_| error.code() == Some("MOVED"));
        let Some((place, slot)) = told else { return };
        let Some((host, port)) = place.rsplit_once(':') else {
            return;
        };
        if let Ok(port) = port.parse() {
            lock(&self.known).insert(slot, (host.to_owned(), port));
        }
    }
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
        let slots = Slots::default();
        let any: ConnectionInfo = "redis://:secret@one:7000/".parse().unwrap();
        let place = |slots: &Slots, key: &str| slots.place(any.clone(), key.as_bytes()).addr().to_string();
        assert_eq!(place(&slots, "foo"), "one:7000");
        lock(&slots.known).insert(12_182, ("two".into(), 7001));
        assert_eq!(place(&slots, "foo"), "two:7001");
        assert_eq!(place(&slots, "bar"), "one:7000");
        lock(&slots.known).insert(12_182, (String::new(), 7002));
        assert_eq!(place(&slots, "foo"), "one:7002");
    }
}
