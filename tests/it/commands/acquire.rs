//! DLOCK.ACQUIRE with names of any bytes. Its rules are in `tests/rules`.

use dlock_testkit::start;

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
