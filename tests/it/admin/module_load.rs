//! Loading the module in each way that a server offers.

use std::collections::BTreeMap;

use dlock_testkit::{Server, module_path, start};
use redis::Value;

#[test]
fn loadmodule_directive_loads_module() {
    let (_server, mut client) = start();
    assert_eq!(client.acquire("door alice 10000").holds, 1);
}

#[test]
fn module_load_adds_commands_to_running_server() {
    let server = Server::without_module("");
    let mut client = server.client();
    client.assert_error("ERR", "DLOCK.OWNER door");
    client.ok(&format!("MODULE LOAD {}", module_path().display()));
    client.acquire("door alice 10000");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[test]
fn module_loadex_applies_settings() {
    let server = Server::without_module("");
    let mut client = server.client();
    let module = module_path();
    client.ok(&format!(
        "MODULE LOADEX {} CONFIG dlock.max-lease-ms 5000",
        module.display()
    ));
    assert_eq!(client.config("dlock.max-lease-ms"), "5000");
    assert_eq!(client.config("dlock.startup-grace-ms"), "0");
    client.assert_error("ERR", "DLOCK.ACQUIRE door alice 5001");
}

#[test]
fn module_loadex_with_bad_setting_loads_nothing() {
    let server = Server::without_module("");
    let mut client = server.client();
    let module = module_path();
    client.error_code(&format!(
        "MODULE LOADEX {} CONFIG dlock.max-lease-ms 0",
        module.display()
    ));
    client.assert_error("ERR", "DLOCK.OWNER door");
    assert!(server.log().contains("dlock rejects the value of a setting"));
    let is_expected = !server.log().contains("could not register");
    assert!(is_expected, "no other module is blamed");
    client.ok(&format!(
        "MODULE LOADEX {} CONFIG dlock.max-lease-ms 1",
        module.display()
    ));
}

#[test]
fn module_load_with_arguments_is_refused() {
    let server = Server::without_module("");
    let mut client = server.client();
    let module = module_path();
    client.error_code(&format!("MODULE LOAD {} surprise", module.display()));
    client.assert_error("ERR", "DLOCK.OWNER door");
    client.ok(&format!("MODULE LOAD {}", module.display()));
}

#[test]
fn module_unload_is_refused() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    client.assert_error("ERR", "MODULE UNLOAD dlock");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[test]
fn module_list_shows_dlock() {
    let server = Server::start();
    let modules: Vec<BTreeMap<String, Value>> = server.client().ask("MODULE LIST");
    let is_dlock = |module: &&BTreeMap<String, Value>| module["name"] == Value::BulkString(b"dlock".to_vec());
    let module = modules.iter().find(is_dlock).expect("it is listed");
    let version: Vec<i64> = env!("CARGO_PKG_VERSION")
        .split('.')
        .map(|part| part.parse().expect("a number"))
        .collect();
    let version = 10_000 * version[0] + 100 * version[1] + version[2];
    assert_eq!(module["ver"], Value::Int(version));
}
