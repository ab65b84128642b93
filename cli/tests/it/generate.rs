//! Completions, manual pages, and `make install`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{outcome, tool};
use dlock_testkit::{Server, is_installed, module_path, skip};

const COMMANDS: [&str; 10] = [
    "run",
    "ls",
    "show",
    "break",
    "doctor",
    "drill",
    "stats",
    "top",
    "completions",
    "man",
];

#[test]
fn completions_of_every_shell_have_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = tool(&["completions", shell]).exits(0);
        for command in COMMANDS {
            assert!(output.out.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn bash_completes_a_partial_command() {
    let ask = "COMP_WORDS=(dlock do); COMP_CWORD=1; _dlock dlock do dlock; echo \"${COMPREPLY[@]}\"";
    assert_eq!(completed("bash", &["--norc"], ask, 1), "doctor");
}

/// The output of a shell's script after its completions. The server has that port.
#[track_caller]
fn completed(shell: &str, options: &[&str], script: &str, port: u16) -> String {
    let completions = tool(&["completions", shell]).out;
    let script = format!("{completions}\n{script}");
    let mut command = with_tool(shell, port);
    let output = outcome(command.args(options).args(["-c", &script]));
    assert_eq!(output.err, "", "{shell}");
    output.out.trim().to_owned()
}

/// A program that finds the tool in PATH, and a server in DLOCK_URL.
fn with_tool(program: &str, port: u16) -> Command {
    let tool = Path::new(env!("CARGO_BIN_EXE_dlock"));
    let directory = tool.parent().expect("its directory").display();
    let path = std::env::var("PATH").expect("a PATH");
    let mut command = Command::new(program);
    command
        .env("PATH", format!("{directory}:{path}"))
        .env("DLOCK_URL", format!("redis://127.0.0.1:{port}/"));
    command
}

#[test]
fn shells_complete_lock_names() {
    let server = Server::start();
    server.client().acquire("orders:42 alice 60000");
    server.client().acquire("other alice 60000");
    let ask =
        "COMP_WORDS=(dlock show ord); COMP_CWORD=2; _dlock_names dlock ord show; echo \"${COMPREPLY[@]}\"";
    assert_eq!(completed("bash", &["--norc"], ask, server.port()), "orders:42");
    if !is_installed("fish") {
        return skip("there is no fish");
    }
    // The second argument of `run` is a program.
    let ask = "complete -C 'dlock show ord'; complete -C 'dlock run other ord'";
    let names = completed("fish", &["--no-config"], ask, server.port());
    assert_eq!(names, "orders:42");
}

#[test]
fn man_pages_are_written_for_every_command() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().to_str().expect("text");
    tool(&["man", path]).exits(0);
    let page = |name: &str| {
        fs::read_to_string(directory.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    for command in COMMANDS {
        assert!(page(&format!("dlock-{command}.1")).contains(".TH"), "{command}");
    }
    assert!(page("dlock-run.1").contains("lock lost"));
    let main = page("dlock.1");
    for words in [
        "Exit codes",
        "lock not acquired",
        "DLOCK_URL",
        "REDISCLI_AUTH",
        "NO_COLOR",
    ] {
        assert!(main.contains(words), "{words}");
    }
}

#[test]
fn man_directory_not_writable_exits_74() {
    tool(&["man", "/proc/nowhere"]).exits(74);
}

fn install(places: &[(&str, &Path)]) {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project");
    let installed = Command::new(project.join("deploy/install"))
        .args([env!("CARGO_BIN_EXE_dlock").as_ref(), module_path().as_os_str()])
        .env_remove("DESTDIR")
        .env_remove("MODULEDIR")
        .envs(places.iter().copied())
        .output()
        .expect("the script runs");
    assert!(installed.status.success(), "{installed:?}");
}

/// The relative paths of all files below a directory.
fn files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(directory).expect("it is below");
                found.insert(name.to_str().expect("text").to_owned());
            }
        }
    }
    found
}

#[test]
fn install_script_installs_exactly_the_expected_files() {
    let root = tempfile::tempdir().expect("a temporary directory");
    install(&[("DESTDIR", root.path()), ("PREFIX", Path::new("/opt/dlock"))]);
    let mut expected = BTreeSet::from(
        [
            "bin/dlock",
            "lib/redis/modules/libdlock.so",
            "share/bash-completion/completions/dlock",
            "share/doc/dlock/cluster/redis.conf",
            "share/doc/dlock/dlock.conf",
            "share/doc/dlock/grafana/dlock.json",
            "share/doc/dlock/prometheus/dlock.rules.yml",
            "share/doc/dlock/sentinel/redis.conf",
            "share/doc/dlock/sentinel/sentinel.conf",
            "share/doc/dlock/single/redis.conf",
            "share/doc/dlock/redis-server.service.d/dlock.conf",
            "share/doc/dlock/systemd/dlock-metrics.service",
            "share/doc/dlock/systemd/dlock-metrics.timer",
            "share/fish/vendor_completions.d/dlock.fish",
            "share/man/man1/dlock.1",
            "share/zsh/site-functions/_dlock",
        ]
        .map(str::to_owned),
    );
    expected.extend(COMMANDS.map(|command| format!("share/man/man1/dlock-{command}.1")));
    let expected: BTreeSet<String> = expected.iter().map(|file| format!("opt/dlock/{file}")).collect();
    assert_eq!(files(root.path()), expected);
    for file in expected {
        let metadata = fs::metadata(root.path().join(&file)).expect("it is there");
        // Redis only loads executable modules.
        let is_code = file.ends_with("bin/dlock") || file.ends_with(".so");
        let mode = if is_code { 0o755 } else { 0o644 };
        assert!(metadata.len() > 0, "{file}");
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{file}");
    }
}

#[test]
fn installed_examples_load_the_installed_module() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let modules = root.path().join("modules");
    install(&[("PREFIX", root.path()), ("MODULEDIR", &modules)]);
    let modules = modules.to_str().expect("text");
    let examples = root.path().join("share/doc/dlock");
    let drop_in =
        fs::read_to_string(examples.join("redis-server.service.d/dlock.conf")).expect("it is there");
    assert!(drop_in.contains(&format!("\nExecPaths={modules}\n")), "{drop_in}");
    let lines = fs::read_to_string(examples.join("dlock.conf")).expect("it is there");
    assert!(
        lines.contains(&format!("\nloadmodule {modules}/libdlock.so\n")),
        "{lines}"
    );
    let server = Server::without_module(&format!("include {}", examples.join("dlock.conf").display()));
    assert_eq!(server.client().config("dlock.max-lease-ms"), "60000");
}
