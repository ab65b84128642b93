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
fn crc64_of_kit_matches_server() {
    let mut fixture = Fixture::new();
    // The check value in the server's source.
    assert_eq!(payload::crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    assert_eq!(payload::sealed(payload::body(&fixture.dump)), fixture.dump);
    let rebuilt = payload::with_text(&fixture.dump, &payload::text(&fixture.dump));
    assert_eq!(fixture.try_all(&[rebuilt]), 1, "a valid payload is accepted");
}

#[test]
fn truncated_payload_is_refused() {
    let mut fixture = Fixture::new();
    let dump = &fixture.dump;
    let cut: Vec<Vec<u8>> = (0..dump.len()).map(|length| dump[..length].to_vec()).collect();
    assert_eq!(fixture.try_all(&cut), 0);
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
fn truncated_value_is_refused_except_between_holders() {
    let mut fixture = Fixture::new();
    let text = payload::text(&fixture.dump);
    let cut: Vec<Vec<u8>> = (0..text.len())
        .map(|length| payload::with_text(&fixture.dump, &text[..length]))
        .collect();
    // A lock with fewer holders is valid: one, or two.
    assert_eq!(fixture.try_all(&cut), 2);
}

#[test]
fn payload_with_flipped_bit_is_refused_by_checksum() {
    let mut fixture = Fixture::new();
    let flipped = flipped_bits(&fixture.dump, payload::VALUE_START..fixture.dump.len());
    assert_eq!(fixture.try_all(&flipped), 0);
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

#[test]
fn changed_byte_with_valid_checksum_restores_no_invalid_lock() {
    let mut fixture = Fixture::new();
    let text = payload::text(&fixture.dump);
    let mut changed = Vec::new();
    for position in 0..text.len() {
        for byte in [0x00, 0x01, 0x02, 0x03, 0x7f, 0x80, 0xff] {
            let mut text = text.clone();
            text[position] = byte;
            changed.push(payload::with_text(&fixture.dump, &text));
        }
    }
    assert!(fixture.try_all(&changed) > 0, "some bytes leave a valid lock");
}

#[test]
fn inserted_or_deleted_bytes_restore_no_invalid_lock() {
    let mut fixture = Fixture::new();
    let text = payload::text(&fixture.dump);
    let mut changed = Vec::new();
    for position in 0..=text.len() {
        let (head, tail) = text.split_at(position);
        for added in [&[0][..], &[1], &[0x80], &[0xff; 10]] {
            changed.push(payload::with_text(&fixture.dump, &[head, added, tail].concat()));
        }
        changed.push(payload::with_text(
            &fixture.dump,
            &[head, tail.get(1..).unwrap_or_default()].concat(),
        ));
    }
    fixture.try_all(&changed);
}

#[test]
fn two_concatenated_locks_are_refused() {
    let mut fixture = Fixture::new();
    let text = payload::text(&fixture.dump);
    let twice = payload::with_text(&fixture.dump, &[&text[..], &text[1..]].concat());
    assert_eq!(fixture.try_all(&[twice]), 0, "each owner would occur twice");
    fixture.client.acquire("mutex dave 60000");
    let mutex = payload::text(&fixture.client.ask::<Vec<u8>>("DUMP mutex"));
    let both = payload::with_text(&fixture.dump, &[&text[..], &mutex[1..]].concat());
    assert_eq!(fixture.try_all(&[both]), 0, "dave would share a mutex");
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
