//! The programs on the pages in languages other than Rust print what the pages show.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::page::{self, Block, Page};
use crate::support::{SHOWN_PORT, client_libraries, is_installed, run};
use dlock_testkit::{Client, Proxy, Server, skip, wait_for};
use tempfile::TempDir;

/// The program with that file name on a page.
fn program(page: &str, file: &str) -> Block {
    let page = Page::read(Path::new(page));
    let mut blocks = page.blocks.into_iter();
    let block = blocks.find(|block| block.note("file") == Some(file));
    block.unwrap_or_else(|| panic!("the page has no block with the note `file: {file}`"))
}

/// Writes a program into a directory, with the server's port.
fn write_with_port(block: &Block, port: u16, directory: &Path) {
    let file = block.note("file").expect("the block was found by this note");
    let code = block.code.replace(SHOWN_PORT, &port.to_string());
    fs::write(directory.join(file), code).expect("the directory is writable");
}

/// A file of `examples/`.
fn example(path: &str) -> String {
    let path = page::root().join("examples").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether the lines of `piece` stand together in `lines`, apart from a common indentation.
fn has_piece(lines: &[&str], piece: &[&str]) -> bool {
    lines.windows(piece.len()).any(|window| {
        let text = window[0].trim_start();
        let indentation = window[0].strip_suffix(text).unwrap_or_default();
        let mut pairs = window.iter().zip(piece);
        pairs.all(|(line, shown)| line.strip_prefix(indentation) == Some(*shown))
    })
}

/// The first piece of an excerpt that does not stand in the file. Blank lines separate the pieces.
fn strange_piece(excerpt: &str, file: &str) -> Option<String> {
    let (excerpt, lines): (Vec<&str>, Vec<&str>) = (excerpt.lines().collect(), file.lines().collect());
    let mut pieces = excerpt.split(|line| line.is_empty());
    let strange = pieces.find(|piece| !piece.is_empty() && !has_piece(&lines, piece));
    strange.map(|piece| piece.join("\n"))
}

#[test]
fn excerpts_on_pages_stand_in_their_files() {
    let mut found = 0;
    for page in page::all() {
        for block in &page.blocks {
            let Some(path) = block.note("from") else {
                continue;
            };
            let file = fs::read_to_string(page::root().join(path));
            let file = file.unwrap_or_else(|error| panic!("{path}: {error}"));
            let strange = strange_piece(&block.code, &file);
            assert_eq!(strange, None, "{}: not in {path}", page.place(block));
            found += 1;
        }
    }
    assert!(found >= 4, "expected 4 excerpts or more, found {found}");
}

#[test]
fn changed_line_of_excerpt_is_found() {
    let file = "def f(x):\n    a = 1\n    b(\n        a\n    )\n\nc()\n";
    let strange = |excerpt| strange_piece(excerpt, file);
    assert_eq!(strange("c()\n\na = 1\nb(\n    a\n)\n"), None);
    assert_eq!(strange("c()\n\na = 2\n").as_deref(), Some("a = 2"));
    assert_eq!(strange("b(\na\n").as_deref(), Some("b(\na"));
    assert_eq!(strange("a = 1\nc()\n").as_deref(), Some("a = 1\nc()"));
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

/// The port of the object store in the program.
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

/// Runs a program of `examples/python/` after replacing its ports. It must print what the comment at its end says. What
/// runs it is Python, or runs Python.
#[track_caller]
fn assert_output_of_last_comment(file: &str, ports: &[(&str, u16)], packages: PathBuf, python: &mut Command) {
    let mut code = example(&format!("python/{file}"));
    for (shown, port) in ports {
        code = code.replace(shown, &port.to_string());
    }
    let (_, comment) = code
        .split_once("\n# It prints:\n#\n")
        .expect("the program ends with its output");
    let lines = comment.lines().map(|line| line.strip_prefix("# "));
    let expected: Vec<&str> = lines.map(|line| line.expect("a line of the comment")).collect();
    let directory = directory();
    fs::write(directory.path().join(file), &code).expect("the directory is writable");
    let printed = run(python.env("PYTHONPATH", packages).arg(file), directory.path());
    let printed = printed.expect("the program succeeds");
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected, "{file}");
}

/// Runs a private PostgreSQL, which tells of that, and a program after making its tables. The words are a file with SQL
/// and the program.
const IN_POSTGRES: &str = r#"
    exec 3>&1 >/dev/null
    pg_virtualenv -t sh -c 'createdb shop && psql -X -d shop -v ON_ERROR_STOP=1 -f "$0" && python3 "$1" >&3' "$0" "$1"
"#;

#[test]
fn postgres_rejects_write_with_stale_fence() {
    if !is_installed("pg_virtualenv") {
        return skip("PostgreSQL or pg_virtualenv is not installed (Debian: apt-get install postgresql)");
    }
    let Some(packages) = library(client_libraries::python(), "redis-py, psycopg") else {
        return;
    };
    let server = Server::start();
    let mut postgres = Command::new("sh");
    postgres.args(["-c", IN_POSTGRES]);
    postgres.arg(page::root().join("examples/python/fences.sql"));
    let ports = [(SHOWN_PORT, server.port())];
    assert_output_of_last_comment("fenced_postgres.py", &ports, packages, &mut postgres);
}

#[test]
fn redis_rejects_writes_of_holder_that_lost_its_lock() {
    if let Some(packages) = library(client_libraries::python(), "redis-py") {
        let server = Server::start();
        let ports = [(SHOWN_PORT, server.port())];
        let mut python = Command::new("python3");
        assert_output_of_last_comment("fenced_redis.py", &ports, packages, &mut python);
    }
}

#[test]
fn object_store_rejects_write_with_stale_fence() {
    if let Some(packages) = library(client_libraries::python(), "redis-py") {
        let server = Server::start();
        let mut store = Running::start(&mut Command::new("tests/docs/object-store"), &page::root());
        let ports = [
            (SHOWN_PORT, server.port()),
            (SHOWN_STORE_PORT, store.printed_port()),
        ];
        let mut python = Command::new("python3");
        assert_output_of_last_comment("fenced_object.py", &ports, packages, &mut python);
    }
}

const CLIENT_AUTHORS: &str = "docs/client-authors.md";

/// A program that runs. Killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command, directory: &Path) -> Self {
        let child = command.current_dir(directory).stdout(Stdio::piped()).spawn();
        Self(child.expect("the program can be run"))
    }

    /// The port in its first line.
    fn printed_port(&mut self) -> u16 {
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("it is a pipe");
        let read = BufReader::new(stdout).read_line(&mut line);
        read.expect("it prints text");
        line.trim_end().parse().expect("a port")
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
