//! Corrupt RESTORE payloads: the server survives, and restores no invalid lock.

use dlock_testkit::{Client, Server, payload, start_with};
use redis::Value;

/// A server with a lock, and its dump.
struct Fixture {
    client: Client,
    dump: Vec<u8>,
    // Declared last, so that the server is dropped after its client.
    server: Server,
}

impl Fixture {
    /// Holders with and without request ids, with short and long owners.
    fn new() -> Self {
        let (server, mut client) =
            start_with("rdbcompression no\nsanitize-dump-payload yes\nloglevel warning");
        let long = "o".repeat(70);
        client.acquire("door alice 60000 LIMIT 3");
        client.acquire("door alice 60000 LIMIT 3 REQID r1");
        client.acquire(&format!("door {long} 600000 SHARED REQID r2"));
        client.acquire("door bob 60000 LIMIT 300");
        let dump: Vec<u8> = client.ask("DUMP door");
        Self { client, dump, server }
    }

    /// Restores each payload. Returns how many the server accepts: those must be valid locks.
    fn try_all(&mut self, payloads: &[Vec<u8>]) -> usize {
        let before = self.client.lock("door").standing();
        let mut accepted = 0;
        for chunk in payloads.chunks(500) {
            let restored = self.client.pipeline(
                chunk
                    .iter()
                    .map(|payload| vec![&b"RESTORE"[..], b"broken", b"0", payload, b"REPLACE"]),
            );
            self.server.assert_alive();
            for (payload, reply) in chunk.iter().zip(restored) {
                if reply == Value::Okay {
                    accepted += 1;
                    self.client
                        .ask_args::<Value>(&[b"RESTORE", b"broken", b"0", payload, b"REPLACE"]);
                    self.assert_lock_is_valid(payload);
                }
            }
        }
        self.client.ask::<i64>("DEL broken");
        let standing = self.client.lock("door").standing();
        assert_eq!(standing, before, "the other lock is unchanged");
        let fence = self.client.acquire("other alice 1000").fence;
        assert!(fence < 1 << 52, "no payload exhausted the fences: {fence}");
        accepted
    }

    #[track_caller]
    fn assert_lock_is_valid(&mut self, payload: &[u8]) {
        // All its leases may have expired.
        let Some(lock) = self.client.find_lock("broken") else {
            return;
        };
        let holders = lock.holders.len();
        let is_expected = lock.limit == -1 || lock.limit >= i64::try_from(holders).expect("few");
        assert!(is_expected, "{lock:?} of {payload:?}");
        for holder in &lock.holders {
            assert!((1..=512).contains(&holder.owner.len()), "{lock:?} of {payload:?}");
            assert!((1..1 << 53).contains(&holder.fence), "{lock:?} of {payload:?}");
            let is_expected = (1..=(1 << 32) + 64).contains(&holder.holds);
            assert!(is_expected, "{lock:?} of {payload:?}");
            let same_owner = lock
                .holders
                .iter()
                .filter(|other| other.owner == holder.owner)
                .count();
            assert_eq!(same_owner, 1, "{lock:?} of {payload:?}");
        }
        let is_expected = lock.holders.is_sorted_by(|a, b| a.fence < b.fence);
        assert!(is_expected, "{lock:?} of {payload:?}");
    }
}

#[test]
fn truncated_payload_with_valid_checksum_restores_no_invalid_lock() {
    let mut fixture = Fixture::new();
    let dump = &fixture.dump;
    let cut: Vec<Vec<u8>> = (0..payload::value_end(dump))
        .map(|length| payload::cut(dump, length))
        .collect();
    // The server reads on into the footer, whose first bytes may be taken for the last two of the value.
    let accepted = fixture.try_all(&cut);
    assert!(accepted <= 1, "{accepted} of {}", cut.len());
}

#[test]
fn flipped_bit_with_valid_checksum_restores_no_invalid_lock() {
    let mut fixture = Fixture::new();
    // From the module id on: other types are parsed by the server.
    let body = payload::body(&fixture.dump).to_vec();
    let flipped: Vec<Vec<u8>> = flipped_bits(&body, 1..payload::value_end(&fixture.dump))
        .iter()
        .map(|body| payload::sealed(body))
        .collect();
    let accepted = fixture.try_all(&flipped);
    assert!(accepted > 0, "some bits only change a letter of an owner");
}

/// Copies of `bytes`, each with one bit of `range` flipped.
fn flipped_bits(bytes: &[u8], range: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let flips = range.flat_map(|position| (0..8).map(move |bit| (position, 1 << bit)));
    flips
        .map(|(position, mask)| {
            let mut flipped = bytes.to_vec();
            flipped[position] ^= mask;
            flipped
        })
        .collect()
}
