//! Broken RESTORE payloads: the server lives on, and no lock comes of them that could not exist.

use dlock_testkit::{Client, Server, payload, start_with};
use redis::Value;

/// A server with a lock, and the dump of it.
struct Scene {
    client: Client,
    dump: Vec<u8>,
    // Last: the server goes after the client.
    server: Server,
}

impl Scene {
    /// Holders with and without names, with short and long owners.
    fn new() -> Self {
        let (server, mut client) =
            start_with("rdbcompression no\nsanitize-dump-payload yes\nloglevel warning");
        let long = "o".repeat(70);
        client.acquire("door alice 60000 LIMIT 3");
        client.acquire("door alice 60000 LIMIT 3 REQID r1");
        client.acquire(&format!("door {long} 86400000 SHARED REQID r2"));
        client.acquire("door bob 60000 LIMIT 300");
        let dump: Vec<u8> = client.ask("DUMP door");
        Self { client, dump, server }
    }

    /// Restores each payload. Those that the server takes must be locks that can exist, and go again.
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
                    self.assert_lock_can_exist(payload);
                }
            }
        }
        self.client.ask::<i64>("DEL broken");
        assert_eq!(
            self.client.lock("door").standing(),
            before,
            "the others are as they were"
        );
        let fence = self.client.acquire("other alice 1000").fence;
        assert!(fence < 1 << 52, "no payload used the fences up: {fence}");
        accepted
    }

    #[track_caller]
    fn assert_lock_can_exist(&mut self, payload: &[u8]) {
        // All leases may have ended in it.
        let Some(lock) = self.client.find_lock("broken") else {
            return;
        };
        let holders = lock.holders.len();
        assert!(
            lock.limit == -1 || lock.limit >= i64::try_from(holders).expect("few"),
            "{lock:?} of {payload:?}"
        );
        for holder in &lock.holders {
            assert!((1..=512).contains(&holder.owner.len()), "{lock:?} of {payload:?}");
            assert!((1..1 << 53).contains(&holder.fence), "{lock:?} of {payload:?}");
            assert!(
                (1..=(1 << 32) + 64).contains(&holder.holds),
                "{lock:?} of {payload:?}"
            );
            let same_owner = lock
                .holders
                .iter()
                .filter(|other| other.owner == holder.owner)
                .count();
            assert_eq!(same_owner, 1, "{lock:?} of {payload:?}");
        }
        assert!(
            lock.holders.is_sorted_by(|a, b| a.fence < b.fence),
            "{lock:?} of {payload:?}"
        );
    }
}

#[test]
fn crc64_of_kit_matches_server() {
    let mut scene = Scene::new();
    // The value that the server's own source gives for this text.
    assert_eq!(payload::crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    assert_eq!(payload::sealed(payload::body(&scene.dump)), scene.dump);
    let rebuilt = payload::with_text(&scene.dump, &payload::text(&scene.dump));
    assert_eq!(scene.try_all(&[rebuilt]), 1, "what is not broken is taken");
}

#[test]
fn truncated_payload_is_refused() {
    let mut scene = Scene::new();
    let dump = &scene.dump;
    let cut: Vec<Vec<u8>> = (0..dump.len()).map(|length| dump[..length].to_vec()).collect();
    assert_eq!(scene.try_all(&cut), 0);
}

#[test]
fn truncated_payload_with_valid_checksum_restores_no_invalid_lock() {
    let mut scene = Scene::new();
    let dump = &scene.dump;
    let cut: Vec<Vec<u8>> = (0..payload::value_end(dump))
        .map(|length| payload::cut(dump, length))
        .collect();
    // The server reads on into its footer, whose first bytes can stand in for the last two of the value.
    let accepted = scene.try_all(&cut);
    assert!(accepted <= 1, "{accepted} of {}", cut.len());
}

#[test]
fn truncated_value_is_refused_except_between_holders() {
    let mut scene = Scene::new();
    let text = payload::text(&scene.dump);
    let cut: Vec<Vec<u8>> = (0..text.len())
        .map(|length| payload::with_text(&scene.dump, &text[..length]))
        .collect();
    // Fewer holders are a lock too: one, or two.
    assert_eq!(scene.try_all(&cut), 2);
}

#[test]
fn payload_with_flipped_bit_is_refused_by_checksum() {
    let mut scene = Scene::new();
    let flipped = flipped_bits(&scene.dump, payload::VALUE_START..scene.dump.len());
    assert_eq!(scene.try_all(&flipped), 0);
}

#[test]
fn flipped_bit_with_valid_checksum_restores_no_invalid_lock() {
    let mut scene = Scene::new();
    // From the module's own number on: what the server makes of another type is its own affair.
    let body = payload::body(&scene.dump).to_vec();
    let flipped: Vec<Vec<u8>> = flipped_bits(&body, 1..payload::value_end(&scene.dump))
        .iter()
        .map(|body| payload::sealed(body))
        .collect();
    let accepted = scene.try_all(&flipped);
    assert!(accepted > 0, "some bits only change a letter of an owner");
}

#[test]
fn changed_byte_with_valid_checksum_restores_no_invalid_lock() {
    let mut scene = Scene::new();
    let text = payload::text(&scene.dump);
    let mut changed = Vec::new();
    for position in 0..text.len() {
        for byte in [0x00, 0x01, 0x02, 0x03, 0x7f, 0x80, 0xff] {
            let mut text = text.clone();
            text[position] = byte;
            changed.push(payload::with_text(&scene.dump, &text));
        }
    }
    assert!(
        scene.try_all(&changed) > 0,
        "some bytes are as good as the right ones"
    );
}

#[test]
fn inserted_or_deleted_bytes_restore_no_invalid_lock() {
    let mut scene = Scene::new();
    let text = payload::text(&scene.dump);
    let mut changed = Vec::new();
    for position in 0..=text.len() {
        let (head, tail) = text.split_at(position);
        for added in [&[0][..], &[1], &[0x80], &[0xff; 10]] {
            changed.push(payload::with_text(&scene.dump, &[head, added, tail].concat()));
        }
        changed.push(payload::with_text(
            &scene.dump,
            &[head, tail.get(1..).unwrap_or_default()].concat(),
        ));
    }
    scene.try_all(&changed);
}

#[test]
fn two_concatenated_locks_are_refused() {
    let mut scene = Scene::new();
    let text = payload::text(&scene.dump);
    let twice = payload::with_text(&scene.dump, &[&text[..], &text[1..]].concat());
    assert_eq!(scene.try_all(&[twice]), 0, "each owner would stand twice");
    scene.client.acquire("mutex dave 60000");
    let mutex = payload::text(&scene.client.ask::<Vec<u8>>("DUMP mutex"));
    let both = payload::with_text(&scene.dump, &[&text[..], &mutex[1..]].concat());
    assert_eq!(scene.try_all(&[both]), 0, "dave would share a mutex");
}

/// Copies of `bytes` with one bit of `range` the other way.
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
