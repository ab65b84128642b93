//! COMMAND INFO, COMMAND DOCS and others: what clients, proxies and redis-cli ask the server about the module.

use std::collections::BTreeMap;

use dlock_testkit::{Client, Server, start};
use redis::Value;

type Map = BTreeMap<String, Value>;

/// Name, arity, flags, flags of the key if it has one.
const COMMANDS: [(&str, i64, &str, &str); 8] = [
    (
        "dlock.acquire",
        -4,
        "blocking denyoom fast module write",
        "RW access update",
    ),
    ("dlock.release", -3, "fast module write", "RW access update"),
    ("dlock.extend", -4, "fast module write", "RW access update"),
    ("dlock.guard", -4, "module write", "RO access"),
    ("dlock.grants", -3, "blocking module", ""),
    ("dlock.owner", 2, "fast module readonly", "RO access"),
    ("dlock.info", 2, "fast module readonly", "RO access"),
    ("dlock.help", 1, "fast loading module readonly stale", ""),
];
/// Newer servers report more.
const FLAGS: &str = "write readonly denyoom fast module admin blocking noscript loading stale";

#[test]
fn command_info_has_arity_flags_and_key() {
    let (_server, mut client) = start();
    for (name, arity, flags, key_flags) in COMMANDS {
        let info: Vec<Vec<Value>> = client.ask(&format!("COMMAND INFO {name}"));
        let info = &info[0];
        assert_eq!(text(&info[0]), name);
        assert_eq!(info[1], Value::Int(arity), "{name}");
        let mut actual = texts(&info[2]);
        actual.retain(|flag| FLAGS.split(' ').any(|known| known == flag));
        actual.sort();
        assert_eq!(actual.join(" "), flags, "{name}");
        let keys = usize::from(!key_flags.is_empty());
        let position = Value::Int(keys as i64);
        assert_eq!(
            info[3..6],
            [position.clone(), position.clone(), position],
            "{name}"
        );
        let key_specs: Vec<Map> = from(&info[8]);
        assert_eq!(key_specs.len(), keys, "{name}");
        for key in key_specs {
            let mut actual = texts(&key["flags"]);
            actual.sort();
            assert_eq!(actual.join(" "), key_flags, "{name}");
        }
    }
}

#[test]
fn command_docs_shows_minfence_on_server_of_a_quorum_only() {
    for (lines, is_shown) in [("", false), ("dlock.quorum yes", true)] {
        let server = Server::with(lines);
        for name in ["dlock.acquire", "dlock.extend"] {
            let docs: BTreeMap<String, Map> = server.client().ask(&format!("COMMAND DOCS {name}"));
            let arguments = format!("{:?}", docs[name]["arguments"]);
            assert_eq!(arguments.contains("MINFENCE"), is_shown, "{name} {lines}");
        }
    }
}

#[test]
fn help_lists_commands_as_command_docs_does() {
    let (_server, mut client) = start();
    let help: Vec<String> = client.ask("DLOCK.HELP");
    let shown: Vec<&str> = help.iter().step_by(2).map(String::as_str).collect();
    let names = shown.iter().map(|line| line.split(' ').next().expect("the name"));
    let mut names: Vec<String> = names.map(str::to_lowercase).collect();
    names.sort_unstable();
    let mut expected = COMMANDS.map(|(name, ..)| name);
    expected.sort_unstable();
    assert_eq!(names, expected);
    for (line, summary) in shown.iter().zip(help.iter().skip(1).step_by(2)) {
        let name = line.split(' ').next().expect("the name").to_lowercase();
        let docs: BTreeMap<String, Map> = client.ask(&format!("COMMAND DOCS {name}"));
        assert_eq!(summary.trim_start(), text(&docs[&name]["summary"]), "{name}");
        assert!(!line.contains("MINFENCE"), "{line}");
    }
}

#[test]
fn command_list_shows_all_module_commands() {
    let server = Server::start();
    let mut commands: Vec<String> = server.client().ask("COMMAND LIST FILTERBY MODULE dlock");
    commands.sort();
    let expected = "acquire apply extend grants guard help info owner probe release sync";
    let expected: Vec<_> = expected.split(' ').map(|name| format!("dlock.{name}")).collect();
    assert_eq!(commands, expected);
}

#[test]
fn internal_commands_are_flagged_admin_and_write() {
    let server = Server::start();
    for (name, arity, keys) in [("dlock.apply", 3, 1), ("dlock.sync", -3, 0)] {
        let info: Vec<Vec<Value>> = server.client().ask(&format!("COMMAND INFO {name}"));
        let flags = texts(&info[0][2]);
        let is_expected = flags.contains(&"write".to_owned()) && flags.contains(&"admin".to_owned());
        assert!(is_expected, "{name}: {flags:?}");
        assert_eq!(info[0][1], Value::Int(arity), "{name}");
        assert_eq!(info[0][3], Value::Int(keys), "{name}");
    }
}

#[test]
fn command_getkeys_finds_key() {
    let (_server, mut client) = start();
    for command in [
        "DLOCK.ACQUIRE door alice 10000 LIMIT 3 REQID r1",
        "DLOCK.ACQUIRE door alice 10000 QUEUE inbox 0 REQID r1",
        "DLOCK.RELEASE door alice FENCE 1 ALL",
        "DLOCK.EXTEND door alice 10000",
        "DLOCK.OWNER door",
        "DLOCK.INFO door",
    ] {
        let reply = client.ask::<Vec<String>>(&format!("COMMAND GETKEYS {command}"));
        assert_eq!(reply, ["door"], "{command}");
    }
}

#[test]
fn wrong_arity_is_refused_by_server() {
    let (_server, mut client) = start();
    for (name, arity, _, _) in COMMANDS.into_iter().filter(|(_, arity, ..)| *arity != 1) {
        let too_few = usize::try_from(arity.abs()).expect("small") - 1;
        let command = name.to_owned() + &" x".repeat(too_few - 1);
        let error = client.error(&command);
        let is_expected = error.starts_with("ERR wrong number of arguments");
        assert!(is_expected, "{command}: {error}");
    }
    assert_eq!(client.stat("dlock_errors_err"), 0, "the module was not called");
}

#[test]
fn memory_usage_counts_owners_and_reqids() {
    let (_server, mut client) = start();
    let memory = |client: &mut Client| client.ask::<u64>("MEMORY USAGE door");
    client.acquire("door alice 60000 SHARED");
    let one = memory(&mut client);
    client.acquire(&format!("door {} 60000 SHARED", "b".repeat(500)));
    let two = memory(&mut client);
    assert!(two >= one + 500, "{one} {two}");
    client.acquire(&format!("door alice 60000 SHARED REQID {}", "r".repeat(64)));
    assert!(memory(&mut client) >= two + 64);
}

fn from<T: redis::FromRedisValue>(value: &Value) -> T {
    redis::from_redis_value_ref(value).unwrap_or_else(|error| panic!("{value:?}: {error}"))
}

fn text(value: &Value) -> String {
    from(value)
}

fn texts(value: &Value) -> Vec<String> {
    from(value)
}
