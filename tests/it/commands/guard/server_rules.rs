//! The memory of a GUARD.

use dlock_testkit::Client;
use redis::Value;

use super::guarded_by_alice;

/// The server shares the argument between the two commands. Valkey 8.1 and Redis 8.2 and later store a copy of a value
/// that is shared.
#[test]
fn large_argument_is_not_copied_for_the_command() {
    const MIB: usize = 1 << 20;
    const SIZE: usize = 16 * MIB;
    let peak = |guarded: bool| {
        let (_server, mut client, guard) = guarded_by_alice();
        let value = vec![b'x'; SIZE];
        let words: Vec<&[u8]> = guard.split(' ').map(str::as_bytes).filter(|_| guarded).collect();
        let command = [&words[..], &[&b"SET"[..], b"data", &value]].concat();
        client.ask_args::<Value>(&command);
        assert_eq!(client.ask::<usize>("STRLEN data"), SIZE);
        let peak = client.server_info("memory", "used_memory_peak");
        let valkey = client.server_info("server", "valkey_version");
        let valkey = valkey.split('.').filter_map(|number| number.parse().ok());
        let valkey: Vec<u32> = valkey.collect();
        let copies_shared = valkey >= vec![8, 1] || is_redis_8_2(&mut client);
        (peak.parse::<usize>().expect("a number"), copies_shared)
    };
    let ((plain, copies_shared), (guarded, _)) = (peak(false), peak(true));
    println!(
        "peak with SET {} MiB, with GUARD SET {} MiB",
        plain / MIB,
        guarded / MIB
    );
    // Strings grow with some room to spare.
    let copies = if copies_shared { SIZE * 5 / 4 } else { 0 };
    assert!(guarded < plain + copies + 2 * MIB, "{plain} {guarded}");
}

/// Whether this is Redis 8.2 or later. It copies values that are shared.
fn is_redis_8_2(client: &mut Client) -> bool {
    let info = client.info_section("server");
    let version = info.get("redis_version").map_or("", String::as_str);
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    !info.contains_key("valkey_version") && version >= (8, 2)
}
