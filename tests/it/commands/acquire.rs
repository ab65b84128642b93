//! DLOCK.ACQUIRE with names of any bytes, and with many holders. Its rules are in `tests/rules`.

use dlock_testkit::{Client, start};

#[test]
fn keys_owners_and_reqids_are_binary_safe() {
    let (_server, mut client) = start();
    let owner: Vec<u8> = (0..=255).chain(0..=255).collect();
    let id: Vec<u8> = (192..=255).collect();
    let key = b"\0\r\n \xff";
    for _ in 0..2 {
        let grant: Vec<u64> = client.ask_args(&[b"DLOCK.ACQUIRE", key, &owner, b"10000", b"REQID", &id]);
        assert_eq!(grant[1], 1);
    }
    assert_eq!(client.ask_args::<Vec<u8>>(&[b"DLOCK.OWNER", key]), owner);
    let reply = client.ask_args::<u64>(&[b"DLOCK.RELEASE", key, &owner, b"REQID", &id]);
    assert_eq!(reply, 0);
}

#[test]
fn shared_lock_is_granted_to_300_holders() {
    let (_server, mut client) = start();
    for n in 0..300 {
        client.acquire(&format!("door owner{n} 60000 SHARED"));
    }
    assert_eq!(client.lock("door").holders.len(), 300);
    release_all(&mut client, 300);
    assert!(!client.exists("door"));
}

fn release_all(client: &mut Client, owners: usize) {
    for n in 0..owners {
        assert_eq!(client.release(&format!("door owner{n}")), 0);
    }
}
