//! The lines of README.md in each language hold a lock.

use std::fs;
use std::path::Path;
use std::process::Command;

use dlock_testkit::client_libraries::{self, ours};
use dlock_testkit::{Server, skip};
use tempfile::TempDir;

use crate::support::page::{self, Page};
use crate::support::run;

/// The lines of README.md in that language.
fn lines_in(language: &str) -> String {
    let readme = Page::read(Path::new("README.md"));
    let mut blocks = readme.blocks.into_iter();
    let block = blocks.find(|block| block.language == language);
    block
        .unwrap_or_else(|| panic!("README.md has no lines in {language}"))
        .code
}

#[test]
fn rust_lines_of_readme_stand_in_the_first_example() {
    let example = fs::read_to_string(page::root().join("client/examples/first.rs")).expect("it is there");
    // The tests of the example pass the address of their server.
    let lines = lines_in("rust,ignore").replace("\"redis://127.0.0.1:7379/\"", "server");
    for line in lines
        .lines()
        .map(|line| line.split(" // ").next().unwrap_or(line))
    {
        assert!(example.contains(line), "not in client/examples/first.rs: {line}");
    }
}

/// Runs a program that holds `orders:42` once, prints the order and the fence, and releases the lock.
fn assert_holds_the_lock(server: &Server, program: &mut Command, directory: &Path) {
    let printed = run(program, directory).expect("the program succeeds");
    let mut client = server.client();
    let words: Vec<&str> = printed
        .split_whitespace()
        .filter(|word| word.parse::<u64>().is_ok())
        .collect();
    let fence = client.stat("dlock_fence_known").to_string();
    assert_eq!(
        words,
        ["42", &fence],
        "the order, and the fence of the only grant: {printed}"
    );
    assert_eq!(client.stat("dlock_acquired"), 1);
    assert_eq!(client.stat("dlock_released"), 1);
}

#[test]
fn python_lines_of_readme_hold_a_lock() {
    let packages = match client_libraries::python() {
        Ok(packages) => packages,
        Err(reason) => return skip(&format!("redis-py cannot be installed: {reason}")),
    };
    let (server, directory) = (Server::start(), TempDir::new().expect("a temporary directory"));
    let program = lines_in("python").replace("7379", &server.port().to_string());
    fs::write(directory.path().join("readme.py"), program).expect("the directory is writable");
    let path = std::env::join_paths([ours("python").join("src"), packages]).expect("paths without colons");
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    assert_holds_the_lock(&server, python.arg("readme.py"), directory.path());
}

#[test]
fn go_lines_of_readme_hold_a_lock() {
    if let Err(reason) = client_libraries::require("go") {
        return skip(&reason);
    }
    let (server, directory) = (Server::start(), TempDir::new().expect("a temporary directory"));
    let library = ours("go");
    for file in ["go.mod", "go.sum"] {
        let text = fs::read_to_string(library.join(file)).expect("the library has it");
        let text = text.replace("module dlock\n", "module example\n");
        fs::write(directory.path().join(file), text).expect("the directory is writable");
    }
    let mut edit = Command::new("go");
    edit.args(["mod", "edit", "-require", "dlock@v0.0.0", "-replace"]);
    run(edit.arg(format!("dlock={}", library.display())), directory.path()).expect("go edits it");
    let program = format!(
        "package main\nimport (\"context\"; \"fmt\"; \"dlock\"; \"github.com/redis/go-redis/v9\")\nfunc \
         shipOrder(_ context.Context, order int, fence int64) {{ fmt.Println(order, fence) }}\nfunc main() {{\nctx := \
         context.Background()\n{}if err != nil {{ panic(err) }}\n}}\n",
        lines_in("go").replace("7379", &server.port().to_string())
    );
    fs::write(directory.path().join("readme.go"), program).expect("the directory is writable");
    let mut go = Command::new("go");
    assert_holds_the_lock(
        &server,
        go.args(["run", "-mod=mod", "readme.go"]),
        directory.path(),
    );
}

#[test]
fn javascript_lines_of_readme_hold_a_lock() {
    let library = match client_libraries::our_node() {
        Ok(library) => library,
        Err(reason) => return skip(&reason),
    };
    let server = Server::start();
    // Node.js searches for ioredis beside the program.
    let directory = TempDir::with_prefix_in("run-", &library).expect("the directory is writable");
    let program = format!(
        "import {{ Redis }} from \"ioredis\";\nimport {{ fromIoredis, Locks }} from \"../dist/index.js\";\nconst \
         shipOrder = (order, fence) => console.log(order, fence);\n{}await locks.close();\nprocess.exit();\n",
        lines_in("javascript").replace("7379", &server.port().to_string())
    );
    fs::write(directory.path().join("readme.mjs"), program).expect("the directory is writable");
    assert_holds_the_lock(&server, Command::new("node").arg("readme.mjs"), directory.path());
}
