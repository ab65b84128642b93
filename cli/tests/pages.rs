//! Completions, manual pages, and `make install`.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use dlock_testkit::module_path;
use support::{dlock, outcome};

const COMMANDS: [&str; 9] = [
    "run",
    "ls",
    "show",
    "break",
    "doctor",
    "stats",
    "top",
    "completions",
    "man",
];

#[test]
fn every_shell_gets_completions_for_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let told = outcome(&mut dlock(&["completions", shell]));
        assert_eq!(told.code, 0);
        for command in COMMANDS {
            assert!(told.out.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn bash_completes_what_is_typed() {
    let script = outcome(&mut dlock(&["completions", "bash"])).out;
    let ask = "COMP_WORDS=(dlock do); COMP_CWORD=1; _dlock dlock do dlock; echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash")
        .args(["--norc", "-c", &format!("{script}\n{ask}")])
        .output()
        .expect("bash");
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "doctor", "{bash:?}");
}

#[test]
fn there_is_a_manual_page_for_the_tool_and_for_each_command() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("text");
    assert_eq!(outcome(&mut dlock(&["man", path])).code, 0);
    let page = |name: &str| {
        fs::read_to_string(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    for command in COMMANDS {
        assert!(page(&format!("dlock-{command}.1")).contains(".TH"), "{command}");
    }
    assert!(page("dlock-run.1").contains("the lock was lost"));
    let main = page("dlock.1");
    for words in [
        "Exit codes",
        "the lock was not got",
        "DLOCK_URL",
        "REDISCLI_AUTH",
        "NO_COLOR",
    ] {
        assert!(main.contains(words), "{words}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let refused = outcome(&mut dlock(&["man", "/proc/nowhere"]));
    assert_eq!(refused.code, 74, "{refused:?}");
}

#[test]
fn the_install_script_puts_everything_into_its_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let project = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project");
    let status = Command::new(project.join("scripts/install"))
        .args([env!("CARGO_BIN_EXE_dlock").as_ref(), module_path().as_os_str()])
        .env("DESTDIR", folder.path())
        .env("PREFIX", "/opt/dlock")
        .stdout(Stdio::null())
        .status()
        .expect("the script runs");
    assert!(status.success());
    let files = [
        ("bin/dlock", 0o755),
        ("lib/redis/modules/libdlock.so", 0o644),
        ("share/bash-completion/completions/dlock", 0o644),
        ("share/zsh/site-functions/_dlock", 0o644),
        ("share/fish/vendor_completions.d/dlock.fish", 0o644),
        ("share/man/man1/dlock.1", 0o644),
        ("share/man/man1/dlock-run.1", 0o644),
    ];
    for (file, mode) in files {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join("opt/dlock").join(file);
        let metadata = fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(metadata.len() > 0, "{file}");
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{file}");
    }
}
