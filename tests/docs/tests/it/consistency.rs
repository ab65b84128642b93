//! Facts that several files repeat agree: paths, versions, servers, metrics.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::support::page;
use dlock_testkit::{Server, module_path, skip};
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

/// The files that name the oldest supported Rust, and the manifest that says which it is. The client is for applications
/// that may use an older one than the project.
const RUST_VERSIONS: [(&str, &str); 7] = [
    ("README.md", "Cargo.toml"),
    ("CONTRIBUTING.md", "Cargo.toml"),
    ("docs/getting-started.md", "Cargo.toml"),
    ("deploy/install-deps", "Cargo.toml"),
    ("docs/client.md", "client/Cargo.toml"),
    ("client/README.md", "client/Cargo.toml"),
    ("quorum/README.md", "client/Cargo.toml"),
];

/// That dependencies need no newer one is what `make msrv` finds out.
#[test]
fn rust_versions_of_pages_are_those_of_the_packages() {
    let read = |file: &str| fs::read_to_string(page::root().join(file)).expect("text");
    for (file, manifest) in RUST_VERSIONS {
        let manifest = read(manifest);
        let mut lines = manifest.lines();
        let version = lines.find_map(|line| line.strip_prefix("rust-version = \""));
        let version = version.expect("the oldest supported Rust").trim_end_matches('"');
        let text = read(file);
        let mut mentions = text.lines().filter(|line| line.contains("Rust"));
        let is_named = mentions.any(|line| line.contains(&format!(" {version}")));
        assert!(is_named, "{file} does not name Rust {version}");
    }
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
