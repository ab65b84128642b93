//! The programs on the pages, in languages other than Rust, do what the pages say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::pattern::Fences;
use crate::support::postgres::Postgres;
use crate::support::{SHOWN_PORT, clients, run, store};
use dlock_book::page::{Block, Page};
use dlock_testkit::{Cluster, Sentinel, Server};
use tempfile::TempDir;

/// The program of that file name on a page.
fn program(page: &str, file: &str) -> Block {
    noted(page, "file", file)
}

/// The block of a page with that note before it.
fn noted(page: &str, name: &str, note: &str) -> Block {
    let page = Page::read(Path::new(page));
    let mut blocks = page.blocks.into_iter();
    let block = blocks.find(|block| block.note(name) == Some(note));
    block.unwrap_or_else(|| panic!("no block {name}: {note}"))
}

/// Writes a program into a folder, with the port of the server.
fn write(block: &Block, server: &Server, folder: &Path) {
    let file = block.note("file").expect("it was found by that");
    let code = block.code.replace(SHOWN_PORT, &server.port().to_string());
    fs::write(folder.join(file), code).expect("the folder is writable");
}

const LANGUAGES: &str = "docs/languages.md";

/// The port of a Sentinel on the page.
const SHOWN_SENTINEL_PORT: &str = "26379";

/// Runs a program of `languages.md` on one server, behind a Sentinel and on a cluster, and compares what it prints
/// with what the page says that all of them print.
#[track_caller]
fn prints_what_the_page_says(file: &str, command: &mut Command, folder: &Path) {
    let page = Page::read(Path::new(LANGUAGES));
    let shown = page.blocks.iter().find(|block| block.language == "text");
    let shown = &shown.expect("the page shows what they print").code;
    let mut try_on = |what: &str, code: &str| {
        fs::write(folder.join(file), code).expect("the folder is writable");
        let printed = run(command, folder).unwrap_or_else(|error| panic!("{file}, {what}: {error}"));
        let difference = Fences::default().difference(shown, &printed);
        assert_eq!(difference, None, "{file}, {what}");
    };
    let code = program(LANGUAGES, file).code;
    let server = Server::start();
    try_on(
        "one server",
        &code.replace(SHOWN_PORT, &server.port().to_string()),
    );

    let sentinel = Sentinel::of(&server, 0);
    let behind_sentinels = with_another_connect(&code, &noted(LANGUAGES, "Sentinels", file).code)
        .replace(SHOWN_SENTINEL_PORT, &sentinel.port().to_string())
        .replace("\"locks\"", "\"main\"");
    try_on("Sentinels", &behind_sentinels);
    assert!(server.client().find_lock("orders:42").is_none());

    let cluster = Cluster::start(3);
    // Not the node that has the lock: the client has to find it.
    let other = (0..3).find(|&n| cluster.client(n).call("DLOCK.INFO orders:42").is_err());
    let port = cluster.nodes[other.expect("one of three has it")].port();
    let on_cluster = with_another_connect(&code, &noted(LANGUAGES, "cluster", file).code);
    try_on("a cluster", &on_cluster.replace(SHOWN_PORT, &port.to_string()));
}

/// A program with another function `connect`, and what that imports, as the page tells readers to do.
fn with_another_connect(program: &str, other: &str) -> String {
    let is_import = |line: &&str| line.starts_with("import ") || line.starts_with("from ");
    let (imports, function): (Vec<&str>, Vec<&str>) =
        other.lines().filter(|line| !line.is_empty()).partition(is_import);
    let signature = function.first().expect("it has a function");
    let (before, rest) = program
        .split_once(&format!("\n{signature}\n"))
        .unwrap_or_else(|| panic!("the program has no `{signature}`"));
    let (_, behind) = rest.split_once("\n\n").expect("more functions follow");
    let first_import = before
        .find("import ")
        .expect("the program has imports, as each of them");
    let (head, before) = before.split_at(first_import);
    let (imports, function) = (imports.join("\n"), function.join("\n"));
    format!("{head}{imports}\n{before}\n{function}\n\n{behind}")
}

#[test]
fn another_connect_takes_the_place_of_the_one_in_the_program() {
    let program = "import a\n\n\ndef connect(x):\n    a(x)\n\n\nconnect(1)\n";
    let other = "from b import c\n\n\ndef connect(x):\n    c(x)\n";
    assert_eq!(
        with_another_connect(program, other),
        "from b import c\nimport a\n\n\ndef connect(x):\n    c(x)\n\n\nconnect(1)\n"
    );
}

/// What a library is needed for, or `None` and a line that says why it is not there.
fn library(found: Result<PathBuf, String>, what: &str) -> Option<PathBuf> {
    found
        .inspect_err(|why| println!("skipped: {what} cannot be installed: {why}"))
        .ok()
}

fn folder() -> TempDir {
    TempDir::with_prefix("dlock-book-").expect("a temporary folder can be made")
}

#[test]
fn the_program_in_python_prints_what_the_page_says() {
    if let Some(packages) = library(clients::python(), "redis-py") {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", packages).arg("lock.py");
        prints_what_the_page_says("lock.py", &mut python, folder().path());
    }
}

#[test]
fn the_program_in_go_prints_what_the_page_says() {
    if let Some(module) = library(clients::go(), "go-redis") {
        let folder = folder();
        for file in ["go.mod", "go.sum"] {
            fs::copy(module.join(file), folder.path().join(file)).expect("`go get` made it");
        }
        let mut go = Command::new("go");
        prints_what_the_page_says("lock.go", go.args(["run", "-mod=mod", "lock.go"]), folder.path());
    }
}

#[test]
fn the_program_in_javascript_prints_what_the_page_says() {
    if let Some(packages) = library(clients::node(), "ioredis") {
        // Modules are looked for beside the program.
        let folder = TempDir::with_prefix_in("run-", &packages).expect("the folder is writable");
        prints_what_the_page_says("lock.mjs", Command::new("node").arg("lock.mjs"), folder.path());
    }
}

#[test]
fn the_program_in_java_prints_what_the_page_says() {
    if let Some(libraries) = library(clients::java(), "Jedis") {
        let mut java = Command::new("java");
        java.arg("-cp").arg(libraries.join("lib/*")).arg("Lock.java");
        prints_what_the_page_says("Lock.java", &mut java, folder().path());
    }
}

const RECIPES: &str = "docs/recipes.md";

/// The port of the object store on the page.
const SHOWN_STORE_PORT: &str = "9000";

/// What the page says that a program prints.
fn shown_output(page: &str, file: &str) -> String {
    let page = Page::read(Path::new(page));
    let shown = page
        .blocks
        .iter()
        .find(|block| block.note("printed by") == Some(file));
    shown
        .unwrap_or_else(|| panic!("the page shows no output of {file}"))
        .code
        .clone()
}

#[test]
fn postgresql_refuses_a_write_with_a_fence_of_before() {
    let postgres = Postgres::start();
    let postgres = postgres.inspect_err(|why| println!("skipped: {why}"));
    let (Ok(postgres), Some(packages)) = (postgres, library(clients::python(), "redis-py, psycopg")) else {
        return;
    };
    let (server, folder) = (Server::start(), folder());
    for file in ["fences.sql", "fenced_postgres.py"] {
        write(&program(RECIPES, file), &server, folder.path());
    }
    postgres
        .load(&folder.path().join("fences.sql"))
        .expect("the tables are made");
    let mut python = Command::new("python3");
    postgres.tell(python.env("PYTHONPATH", packages).arg("fenced_postgres.py"));
    let printed = run(&mut python, folder.path()).expect("the program ends well");
    assert_eq!(printed, shown_output(RECIPES, "fenced_postgres.py"));
}

#[test]
fn a_store_with_conditions_refuses_a_write_with_a_fence_of_before() {
    let Some(packages) = library(clients::python(), "redis-py") else {
        return;
    };
    let (server, folder) = (Server::start(), folder());
    let mut block = program(RECIPES, "fenced_object.py");
    block.code = block.code.replace(SHOWN_STORE_PORT, &store::start().to_string());
    write(&block, &server, folder.path());
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).arg("fenced_object.py");
    let printed = run(&mut python, folder.path()).expect("the program ends well");
    assert_eq!(printed, shown_output(RECIPES, "fenced_object.py"));
}
