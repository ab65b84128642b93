//! The programs on the pages in languages other than Rust print what the pages show.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::output_match::Fences;
use crate::support::page::{Block, Page};
use crate::support::postgres::Postgres;
use crate::support::{SHOWN_PORT, client_libraries, object_store, run};
use dlock_testkit::{Client, Cluster, Proxy, Sentinel, Server, skip, wait_for};
use tempfile::TempDir;

/// The program with that file name on a page.
fn program(page: &str, file: &str) -> Block {
    block_with_note(page, "file", file)
}

/// The block of a page with that note.
fn block_with_note(page: &str, name: &str, note: &str) -> Block {
    let page = Page::read(Path::new(page));
    let mut blocks = page.blocks.into_iter();
    let block = blocks.find(|block| block.note(name) == Some(note));
    block.unwrap_or_else(|| panic!("the page has no block with the note `{name}: {note}`"))
}

/// Writes a program into a directory, with the server's port.
fn write(block: &Block, server: &Server, directory: &Path) {
    write_with_port(block, server.port(), directory);
}

fn write_with_port(block: &Block, port: u16, directory: &Path) {
    let file = block.note("file").expect("the block was found by this note");
    let code = block.code.replace(SHOWN_PORT, &port.to_string());
    fs::write(directory.join(file), code).expect("the directory is writable");
}

const LANGUAGES: &str = "docs/languages.md";

/// The Sentinel port on the page.
const SHOWN_SENTINEL_PORT: &str = "26379";

/// Runs a program of `languages.md` against one server, a Sentinel deployment and a cluster. Each must print the
/// output that the page shows.
#[track_caller]
fn assert_documented_output(file: &str, command: &mut Command, directory: &Path) {
    let page = Page::read(Path::new(LANGUAGES));
    let shown = page.blocks.iter().find(|block| block.language == "text");
    let shown = &shown.expect("the page shows the output").code;
    let mut run_against = |deployment: &str, code: &str| {
        fs::write(directory.join(file), code).expect("the directory is writable");
        let printed = run(command, directory).unwrap_or_else(|error| panic!("{file}, {deployment}: {error}"));
        let difference = Fences::default().difference(shown, &printed);
        assert_eq!(difference, None, "{file}, {deployment}");
    };
    let code = program(LANGUAGES, file).code;
    let server = Server::start();
    run_against(
        "one server",
        &code.replace(SHOWN_PORT, &server.port().to_string()),
    );

    let sentinel = Sentinel::of(&server, 0);
    let sentinel_code = replace_connect(&code, &block_with_note(LANGUAGES, "Sentinels", file).code)
        .replace(SHOWN_SENTINEL_PORT, &sentinel.port().to_string())
        .replace("\"locks\"", "\"main\"");
    run_against("Sentinels", &sentinel_code);
    assert!(server.client().find_lock("orders:42").is_none());

    let cluster = Cluster::start(3);
    // Start at a node without the lock: the client must find the right one.
    let other = (0..3).find(|&n| cluster.client(n).call("DLOCK.INFO orders:42").is_err());
    let port = cluster.nodes[other.expect("one of three nodes has the key")].port();
    let cluster_code = replace_connect(&code, &block_with_note(LANGUAGES, "cluster", file).code);
    run_against("a cluster", &cluster_code.replace(SHOWN_PORT, &port.to_string()));
}

/// Replaces the function `connect` of a program and adds the imports of the new one, as the page instructs readers.
fn replace_connect(program: &str, other: &str) -> String {
    let is_import = |line: &&str| line.starts_with("import ") || line.starts_with("from ");
    let (imports, function): (Vec<&str>, Vec<&str>) =
        other.lines().filter(|line| !line.is_empty()).partition(is_import);
    let signature = function.first().expect("the block has a function");
    let (before, rest) = program
        .split_once(&format!("\n{signature}\n"))
        .unwrap_or_else(|| panic!("the program has no function `{signature}`"));
    let (_, after) = rest.split_once("\n\n").expect("more functions follow");
    let first_import = before.find("import ").expect("the program has imports");
    let (head, before) = before.split_at(first_import);
    let (imports, function) = (imports.join("\n"), function.join("\n"));
    format!("{head}{imports}\n{before}\n{function}\n\n{after}")
}

#[test]
fn replaced_connect_keeps_the_rest_and_adds_imports() {
    let program = "import a\n\n\ndef connect(x):\n    a(x)\n\n\nconnect(1)\n";
    let other = "from b import c\n\n\ndef connect(x):\n    c(x)\n";
    let expected = "from b import c\nimport a\n\n\ndef connect(x):\n    c(x)\n\n\nconnect(1)\n";
    assert_eq!(replace_connect(program, other), expected);
}

/// The directory of an installed library; if there is none, the test is skipped.
fn library(installed: Result<PathBuf, String>, name: &str) -> Option<PathBuf> {
    installed
        .inspect_err(|reason| skip(&format!("{name} cannot be installed: {reason}")))
        .ok()
}

fn directory() -> TempDir {
    TempDir::with_prefix("dlock-docs-").expect("a temporary directory can be made")
}

#[test]
fn python_program_prints_the_documented_output() {
    if let Some(packages) = library(client_libraries::python(), "redis-py") {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", packages).arg("lock.py");
        assert_documented_output("lock.py", &mut python, directory().path());
    }
}

#[test]
fn go_program_prints_the_documented_output() {
    if let Some(module) = library(client_libraries::go(), "go-redis") {
        let directory = directory();
        for file in ["go.mod", "go.sum"] {
            fs::copy(module.join(file), directory.path().join(file)).expect("`go get` created it");
        }
        let mut go = Command::new("go");
        assert_documented_output(
            "lock.go",
            go.args(["run", "-mod=mod", "lock.go"]),
            directory.path(),
        );
    }
}

#[test]
fn javascript_program_prints_the_documented_output() {
    if let Some(packages) = library(client_libraries::node(), "ioredis") {
        // Node.js searches for modules beside the program.
        let directory = TempDir::with_prefix_in("run-", &packages).expect("the directory is writable");
        assert_documented_output("lock.mjs", Command::new("node").arg("lock.mjs"), directory.path());
    }
}

#[test]
fn java_program_prints_the_documented_output() {
    if let Some(libraries) = library(client_libraries::java(), "Jedis") {
        let mut java = Command::new("java");
        java.arg("-cp").arg(libraries.join("lib/*")).arg("Lock.java");
        assert_documented_output("Lock.java", &mut java, directory().path());
    }
}

const RECIPES: &str = "docs/recipes.md";

/// The port of the object store on the page.
const SHOWN_STORE_PORT: &str = "9000";

/// The output of a program on the page.
fn shown_output(page: &str, file: &str) -> String {
    let page = Page::read(Path::new(page));
    let mut shown = page.blocks.iter();
    let shown = shown.find(|block| block.note("printed by") == Some(file));
    shown
        .unwrap_or_else(|| panic!("the page has no block `printed by: {file}`"))
        .code
        .clone()
}

#[test]
fn postgres_rejects_write_with_stale_fence() {
    let postgres = Postgres::start();
    let postgres = postgres.inspect_err(|reason| skip(reason));
    let (Ok(postgres), Some(packages)) = (postgres, library(client_libraries::python(), "redis-py, psycopg"))
    else {
        return;
    };
    let (server, directory) = (Server::start(), directory());
    for file in ["fences.sql", "fenced_postgres.py"] {
        write(&program(RECIPES, file), &server, directory.path());
    }
    postgres
        .load(&directory.path().join("fences.sql"))
        .expect("psql creates the tables");
    let mut python = Command::new("python3");
    postgres.set_environment(python.env("PYTHONPATH", packages).arg("fenced_postgres.py"));
    let printed = run(&mut python, directory.path()).expect("the program succeeds");
    assert_eq!(printed, shown_output(RECIPES, "fenced_postgres.py"));
}

#[test]
fn redis_rejects_writes_of_holder_that_lost_its_lock() {
    let Some(packages) = library(client_libraries::python(), "redis-py") else {
        return;
    };
    let (server, directory) = (Server::start(), directory());
    write(&program(RECIPES, "fenced_redis.py"), &server, directory.path());
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).arg("fenced_redis.py");
    let printed = run(&mut python, directory.path()).expect("the program succeeds");
    assert_eq!(printed, shown_output(RECIPES, "fenced_redis.py"));
}

#[test]
fn object_store_rejects_write_with_stale_fence() {
    let Some(packages) = library(client_libraries::python(), "redis-py") else {
        return;
    };
    let (server, directory) = (Server::start(), directory());
    let mut block = program(RECIPES, "fenced_object.py");
    block.code = block
        .code
        .replace(SHOWN_STORE_PORT, &object_store::start().to_string());
    write(&block, &server, directory.path());
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).arg("fenced_object.py");
    let printed = run(&mut python, directory.path()).expect("the program succeeds");
    assert_eq!(printed, shown_output(RECIPES, "fenced_object.py"));
}

const CLIENT_AUTHORS: &str = "docs/client-authors.md";

/// A program that runs. Killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command, directory: &Path) -> Self {
        let child = command.current_dir(directory).stdout(Stdio::piped()).spawn();
        Self(child.expect("the program can be run"))
    }

    /// What it has printed when it ends.
    fn output(mut self) -> String {
        wait_for("the end of the program", || {
            self.0.try_wait().is_ok_and(|status| status.is_some())
        });
        let mut printed = String::new();
        let mut stdout = self.0.stdout.take().expect("it is a pipe");
        stdout.read_to_string(&mut printed).expect("it prints text");
        printed
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The requests of the tasks of `waiting.py` that are held, were held, or wait.
fn arrived(client: &mut Client) -> i64 {
    client.stat("dlock_acquired") + client.stat("dlock_waiters_queued")
}

#[test]
fn queued_tasks_of_program_that_is_cut_off_twice_get_their_locks_in_order() {
    const TASKS: i64 = 10_000;
    let Some(packages) = library(client_libraries::python(), "redis-py") else {
        return;
    };
    let (server, directory) = (Server::start(), directory());
    let (proxy, mut client) = (Proxy::to(server.port()), server.client());
    let block = program(CLIENT_AUTHORS, "waiting.py");
    write_with_port(&block, proxy.port(), directory.path());
    let mut python = Command::new("python3");
    let python = python.env("PYTHONPATH", packages).arg("waiting.py");
    let running = Running::start(python, directory.path());
    // Requests and replies that are under way are lost, and the inbox is not.
    wait_for("some waiters", || client.stat("dlock_waiters_queued") >= 2_000);
    proxy.cut();
    // The inbox ends, and all requests lose their places.
    wait_for("all requests, and some grants", || {
        arrived(&mut client) == TASKS && client.stat("dlock_acquired") >= 2_500
    });
    proxy.refuse(true);
    proxy.cut();
    assert_eq!(client.stat("dlock_inboxes_ended"), 0, "after the first cut");
    wait_for("the end of the inbox", || client.stat("dlock_inboxes") == 0);
    assert!(
        client.stat("dlock_acquired") < TASKS,
        "nobody waited during the second cut"
    );
    proxy.refuse(false);
    let printed = running.output();
    assert_eq!(printed, shown_output(CLIENT_AUTHORS, "waiting.py"));
    assert_eq!(client.stat("dlock_locks"), 0, "all locks are released");
    assert_eq!(client.stat("dlock_waiters"), 0);
}
