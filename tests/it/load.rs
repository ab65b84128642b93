//! Loading the module, in each way that a server has.

use std::collections::BTreeMap;

use dlock_testkit::{Server, module_path};
use redis::Value;

#[test]
fn a_server_starts_with_the_module_in_its_configuration() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.acquire("door alice 10000").holds, 1);
}

#[test]
fn module_load_adds_the_commands_to_a_running_server() {
    let server = Server::without_module("");
    let mut client = server.client();
    assert_eq!(client.refusal("DLOCK.OWNER door"), "ERR");
    client.ok(&format!("MODULE LOAD {}", module_path().display()));
    client.acquire("door alice 10000");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[test]
fn module_loadex_takes_settings() {
    let server = Server::without_module("");
    let mut client = server.client();
    let module = module_path();
    client.ok(&format!(
        "MODULE LOADEX {} CONFIG dlock.max-lease-ms 5000",
        module.display()
    ));
    assert_eq!(client.config("dlock.max-lease-ms"), "5000");
    assert_eq!(client.config("dlock.startup-grace-ms"), "0");
    assert_eq!(client.refusal("DLOCK.ACQUIRE door alice 5001"), "ERR");
}

#[test]
fn module_loadex_with_a_bad_setting_loads_nothing() {
    let server = Server::without_module("");
    let mut client = server.client();
    let module = module_path();
    client.refusal(&format!(
        "MODULE LOADEX {} CONFIG dlock.max-lease-ms 0",
        module.display()
    ));
    assert_eq!(client.refusal("DLOCK.OWNER door"), "ERR");
    assert!(
        server
            .log()
            .contains("dlock does not take the value of a setting")
    );
    assert!(
        !server.log().contains("could not register"),
        "it is no other module's fault"
    );
    client.ok(&format!(
        "MODULE LOADEX {} CONFIG dlock.max-lease-ms 1",
        module.display()
    ));
}

#[test]
fn module_load_takes_no_arguments() {
    let server = Server::without_module("");
    let mut client = server.client();
    let module = module_path();
    client.refusal(&format!("MODULE LOAD {} surprise", module.display()));
    assert_eq!(client.refusal("DLOCK.OWNER door"), "ERR");
    client.ok(&format!("MODULE LOAD {}", module.display()));
}

#[test]
fn the_module_cannot_be_unloaded_because_keys_may_need_it() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("door alice 10000");
    assert_eq!(client.refusal("MODULE UNLOAD dlock"), "ERR");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[test]
fn the_module_is_listed_under_its_name() {
    let server = Server::start();
    let modules: Vec<BTreeMap<String, Value>> = server.client().ask("MODULE LIST");
    assert!(
        modules
            .iter()
            .any(|module| module["name"] == Value::BulkString(b"dlock".to_vec())),
        "{modules:?}"
    );
}
