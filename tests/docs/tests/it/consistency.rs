//! Facts that several files repeat agree: paths, versions, servers, metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::support::page;
use dlock_testkit::{Server, module_path, skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{run, workspace_binary};

/// Pages and configuration files.
fn pages_and_configs() -> Vec<PathBuf> {
    let root = page::root();
    let files = [
        "README.md",
        "CONTRIBUTING.md",
        "client/README.md",
        "quorum/README.md",
        "redis.conf",
    ]
    .iter();
    let mut files: Vec<PathBuf> = files.map(|file| root.join(file)).collect();
    let mut directories = vec![root.join("docs"), root.join("deploy")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("the directory is there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .extension()
                .is_some_and(|kind| kind == "md" || kind == "conf")
            {
                files.push(path);
            }
        }
    }
    files
}

/// Those of Go have the version of a tag.
#[test]
fn client_libraries_have_the_version_of_the_module() {
    for (file, key) in [
        ("clients/python/pyproject.toml", "version = "),
        ("clients/node/package.json", "\"version\": "),
    ] {
        let text = fs::read_to_string(page::root().join(file)).expect("text");
        let version = text.lines().find_map(|line| line.trim().strip_prefix(key));
        let ours = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            version.map(|version| version.trim_end_matches(',')),
            Some(ours.as_str()),
            "{file}"
        );
    }
}

/// The module directories below `/usr` that a text names.
fn module_directories(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |char: char| !(char.is_alphanumeric() || "/-_".contains(char));
    text.match_indices("/usr/").filter_map(move |(at, _)| {
        let path = text[at..].split(is_end).next()?;
        let end = path.find("/redis/modules")? + "/redis/modules".len();
        Some(&path[..end])
    })
}

#[test]
fn module_paths_match_make_install() {
    let Some(tool) = workspace_binary("dlock") else {
        return skip("the tool is not built: run `cargo build -p dlock-cli` first");
    };
    let root = TempDir::with_prefix("dlock-docs-").expect("a temporary directory can be made");
    let mut install = Command::new(page::root().join("deploy/install"));
    install.args([tool.as_os_str(), module_path().as_os_str()]);
    install.env("DESTDIR", root.path()).env_remove("PREFIX");
    run(install.env_remove("MODULEDIR"), root.path()).expect("the script runs");
    let package = fs::read_to_string(page::root().join("deploy/package")).expect("text");
    let mut found = 0;
    for file in pages_and_configs() {
        let text = fs::read_to_string(&file).expect("text");
        for directory in module_directories(&text) {
            let installed = root.path().join(&directory[1..]).join("libdlock.so");
            assert!(
                installed.exists() || package.contains(&format!("MODULEDIR={directory} ")),
                "{} names {directory}, but neither `make install` nor `make deb` puts the module there",
                file.display()
            );
            found += 1;
        }
    }
    assert!(
        found > 5,
        "expected more than 5 mentions of the module's directory, found {found}"
    );
}

/// The packages of this workspace and their dependencies on this platform.
fn packages() -> Vec<Value> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    metadata.args([
        "--filter-platform",
        &format!("{}-unknown-linux-gnu", env::consts::ARCH),
    ]);
    let output = run(&mut metadata, &page::root()).expect("cargo metadata succeeds");
    let metadata: Value = serde_json::from_str(&output).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

/// `1.90` or `1.90.0` as comparable numbers.
fn version(text: &str) -> Vec<u32> {
    let numbers = text.split('.').map(|number| number.parse().expect("a number"));
    numbers.take(2).collect()
}

#[test]
fn rust_that_is_too_old_is_named_before_anything_is_installed() {
    let directory = TempDir::with_prefix("dlock-docs-").expect("a temporary directory can be made");
    let cargo = directory.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\necho 'cargo 1.63.0'\n").expect("the directory is writable");
    fs::set_permissions(&cargo, Permissions::from_mode(0o755)).expect("its owner may do that");
    let path = format!(
        "{}:{}",
        directory.path().display(),
        env::var("PATH").unwrap_or_default()
    );
    let mut install = Command::new(page::root().join("deploy/install-deps"));
    let output = install.env("PATH", path).output().expect("the script can be run");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{message}");
    let needed = env!("CARGO_PKG_RUST_VERSION");
    let expected = format!(
        "{} is Rust 1.63.0, but DLOCK needs {needed} or later",
        cargo.display()
    );
    assert!(message.contains(&expected), "{message}");
}

/// The versions in a text such as `Rust 1.90 or later`, and in one with a link: `[Rust](...) 1.90`.
fn rust_versions(text: &str) -> impl Iterator<Item = Vec<u32>> {
    text.match_indices("Rust").filter_map(|(at, word)| {
        let mut rest = &text[at + word.len()..];
        if let Some(link) = rest.strip_prefix("](") {
            rest = &link[link.find(')')? + 1..];
        }
        let is_end = |char: char| !(char.is_ascii_digit() || char == '.');
        let mut number = rest.strip_prefix(' ')?.split(is_end);
        let number = number.next()?.trim_end_matches('.');
        (number.split('.').count() > 1).then(|| version(number))
    })
}

/// What the client requires: the version of redis-rs.
const CLIENT_RUST_VERSION: &str = "1.88";

fn is_about_client(page: &Path) -> bool {
    ["client/README.md", "quorum/README.md", "docs/client.md"]
        .iter()
        .any(|path| page.ends_with(path))
}

#[test]
fn required_rust_versions_are_those_of_the_pages_and_cover_all_dependencies() {
    let mut ours = BTreeSet::new();
    let mut needed = BTreeMap::new();
    for package in packages() {
        let name = package["name"].as_str().expect("a name").to_owned();
        match package["rust_version"].as_str().map(version) {
            Some(version) if package["source"].is_null() => _ = ours.insert(version),
            Some(version) => _ = needed.insert(name, version),
            None => assert!(package["source"].is_string(), "{name} has no rust-version"),
        }
    }
    let required = ours.last().expect("this workspace has packages").clone();
    // The client is for applications that may use an older one than the project.
    let client = version(CLIENT_RUST_VERSION);
    assert_eq!(ours, BTreeSet::from([client.clone(), required.clone()]));
    for (name, version) in needed {
        assert!(version <= required, "{name} needs Rust {version:?}");
    }
    let mut found = 0;
    let script = page::root().join("deploy/install-deps");
    for file in pages_and_configs().into_iter().chain([script]) {
        let text = fs::read_to_string(&file).expect("text");
        for version in rust_versions(&text) {
            let is_known = version == required || version == client && is_about_client(&file);
            assert!(is_known, "{version:?} in {}", file.display());
            found += 1;
        }
    }
    assert!(
        found >= 5,
        "expected 5 mentions of the required Rust version or more, found {found}"
    );
}

#[test]
fn build_needs_no_server() {
    let mut install = Command::new(page::root().join("deploy/install-deps"));
    install.arg("build").env("DLOCK_SERVER", "/does/not/exist");
    run(&mut install, &page::root()).expect("a build host without a server is enough");
}

#[test]
fn supported_servers_match_the_test_matrix() {
    let mut matrix = Command::new(page::root().join("tests/matrix/fetch-servers"));
    let ids = run(matrix.arg("--list"), &page::root()).expect("the script lists them");
    let operations = fs::read_to_string(page::root().join("docs/operations.md")).expect("the page is there");
    let servers: Vec<(&str, &str)> = ids
        .lines()
        .map(|id| {
            id.trim_end_matches("-io")
                .split_once('-')
                .expect("a name and a version")
        })
        .collect();
    for &(name, version) in &servers {
        let is_row = |line: &str| {
            let cell = |number| line.split('|').nth(number).unwrap_or("").trim().to_lowercase();
            cell(1).starts_with(name) && tested_versions(&cell(2)).any(|tested| tested.starts_with(version))
        };
        let is_expected = operations.lines().any(is_row);
        assert!(is_expected, "docs/operations.md has no row for {name} {version}");
    }
    let (_, table) = operations
        .split_once("| server | tested | limitations |")
        .expect("the page has the table");
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_lowercase()).collect();
        let name = cells[1].split(' ').next().expect("a name");
        for tested in tested_versions(&cells[2]) {
            let is_tested = |&(id, version): &(&str, &str)| id == name && tested.starts_with(version);
            assert!(servers.iter().any(is_tested), "no test of {name} {tested}");
        }
    }
    assert!(servers.len() > 1, "the matrix has no servers");
}

/// The versions in a cell of the table, but those that were tested manually.
fn tested_versions(cell: &str) -> impl Iterator<Item = &str> {
    let by_matrix = !cell.starts_with("manually") && cell != "no";
    let words = cell.split([' ', ',', ';']).filter(move |_| by_matrix);
    words.filter(|word| word.contains('.') && word.starts_with(|char: char| char.is_ascii_digit()))
}

/// The metrics that a text names, with their `error` label if they have one.
fn metrics(text: &str) -> impl Iterator<Item = (String, Option<String>)> {
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    text.match_indices("`dlock_").map(move |(at, _)| {
        let name: String = text[at + 1..].chars().take_while(|&char| is_name(char)).collect();
        let rest = &text[at + 1 + name.len()..];
        let label = rest
            .strip_prefix("{error=\"")
            .and_then(|rest| rest.split('"').next());
        (name, label.map(str::to_owned))
    })
}

#[test]
fn metrics_of_operations_page_exist_in_info_or_prometheus_output() {
    let Some(tool) = workspace_binary("dlock") else {
        return skip("the tool is not built: run `cargo build -p dlock-cli` first");
    };
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let mut stats = Command::new(tool);
    stats.args(["-u", &url, "stats", "--prometheus"]);
    let exported = run(&mut stats, Path::new("/")).expect("`dlock stats` succeeds");
    let fields = server.client().info_section("dlock");
    let page = fs::read_to_string(page::root().join("docs/operations.md")).expect("the page is there");
    let mut found = 0;
    for (name, label) in metrics(&page) {
        let has_label = |line: &str| match &label {
            Some(label) => line.contains(&format!("error=\"{label}\"")),
            None => true,
        };
        let is_exported = exported
            .lines()
            .any(|line| line.starts_with(&format!("{name}{{")) && has_label(line));
        assert!(
            is_exported || fields.contains_key(&name),
            "{name} {label:?} is in neither INFO nor `dlock stats --prometheus`"
        );
        found += 1;
    }
    assert!(
        found > 15,
        "expected more than 15 metrics on the page, found {found}"
    );
}

/// How pages write small numbers.
const NUMBERS: [&str; 11] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
];

/// The number words before a word, in README.md and docs/, with the page. Line breaks count as spaces.
fn numbers_before(word: &str) -> Vec<(usize, PathBuf)> {
    let mut found = Vec::new();
    for page in page::all() {
        let text = fs::read_to_string(page::root().join(&page.path)).expect("the page was read before");
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[1].starts_with(word)) {
            let number = pair[0].trim_start_matches(['[', '*']).to_lowercase();
            let number = NUMBERS.iter().position(|name| *name == number);
            found.extend(number.map(|number| (number, page.path.clone())));
        }
    }
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(page::root().join(path)).expect("the page is there")
}

#[test]
fn pages_agree_on_the_number_of_exceptions_of_fences() {
    let guarantees = read("docs/guarantees.md");
    let (_, section) = guarantees
        .split_once("\n## Fences\n")
        .expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let is_item = |line: &&str| {
        line.split_once(". ")
            .is_some_and(|(number, _)| number.parse::<u8>().is_ok())
    };
    let exceptions = section.lines().filter(is_item).count();
    let claims = numbers_before("exceptions");
    assert!(claims.len() >= 2, "README.md and a page give the number");
    for (claim, path) in claims {
        assert_eq!(claim, exceptions, "exceptions in {}", path.display());
    }
}

#[test]
fn page_for_other_languages_gives_the_number_of_commands() {
    let reference = read("docs/commands.md");
    let headings = reference.lines().filter(|line| line.starts_with("## DLOCK."));
    let commands = headings.filter(|heading| *heading != "## DLOCK.HELP").count();
    let claim = format!("[{} commands](commands.md)", NUMBERS[commands]);
    assert!(read("docs/languages.md").contains(&claim), "{claim}");
}
