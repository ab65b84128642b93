//! Replays transcripts: blocks with the prompt of redis-cli or a shell.
//!
//! HTML comments before a block control the replay:
//!
//! - `run: command` runs before the block, in redis-cli
//! - `wait: command` runs before the block, in a separate redis-cli that waits in the queue
//! - `meanwhile: command` runs while the first command of the block waits
//! - `redis-cli: option` is passed to redis-cli

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::page::Block;
use dlock_testkit::{Server, wait_for};
use tempfile::TempDir;

use super::output_match::Fences;
use super::{SHOWN_PORT, is_installed, workspace_binary};

/// Prompt of redis-cli on the pages.
const CLI_PROMPT: &str = "127.0.0.1:7379> ";
/// Prompt of a shell on the pages.
const SHELL_PROMPT: &str = "$ ";

/// Replays the blocks of one page in order, on one server.
pub struct Session {
    server: Server,
    directory: TempDir,
    fences: Fences,
    waiting: Vec<Child>,
}

/// A command and its output on the page.
#[derive(Debug, PartialEq)]
struct Step {
    is_shell: bool,
    command: String,
    shown: String,
}

/// Whether a block begins with a prompt.
pub fn is_transcript(block: &Block) -> bool {
    block.code.starts_with(CLI_PROMPT) || block.code.starts_with(SHELL_PROMPT)
}

/// The command line client of the server.
pub fn redis_cli() -> Option<&'static str> {
    ["redis-cli", "valkey-cli"]
        .into_iter()
        .find(|name| is_installed(name))
}

/// Installs a wrapper of redis-cli that formats output in a pipe as on a terminal.
fn install_redis_cli_wrapper(directory: &Path) {
    let program = directory.join("redis-cli");
    let script = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}} exec {} --no-raw \"$@\"\n",
        redis_cli().expect("the test checked this")
    );
    fs::write(&program, script).expect("a temporary directory is writable");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("its owner may do that");
}

fn steps(code: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in code.lines() {
        let cli = line.strip_prefix(CLI_PROMPT).map(|command| (false, command));
        let shell = line.strip_prefix(SHELL_PROMPT).map(|command| (true, command));
        match (cli.or(shell), steps.last_mut()) {
            (Some((is_shell, command)), _) => steps.push(Step {
                is_shell,
                command: command.to_owned(),
                shown: String::new(),
            }),
            // A command that continues after a backslash.
            (None, Some(step)) if step.command.ends_with('\\') => {
                step.command.push('\n');
                step.command.push_str(line);
            }
            (None, Some(step)) => {
                step.shown.push_str(line);
                step.shown.push('\n');
            }
            (None, None) => unreachable!("a transcript begins with a prompt"),
        }
    }
    steps
}

impl Session {
    pub fn start() -> Self {
        let directory = TempDir::with_prefix("dlock-docs-").expect("a temporary directory can be made");
        install_redis_cli_wrapper(directory.path());
        Self {
            server: Server::start(),
            directory,
            fences: Fences::default(),
            waiting: Vec::new(),
        }
    }

    /// Replays a block. Returns the differences from the page.
    pub fn differences(&mut self, block: &Block) -> Vec<String> {
        for note in &block.notes {
            match note.split_once(": ") {
                Some(("run", command)) => _ = self.redis_cli_now(&[], command),
                Some(("wait", command)) => {
                    let waiter = self.start_waiting(&[], command);
                    self.waiting.push(waiter);
                }
                _ => {}
            }
        }
        let steps = steps(&block.code);
        let differences = steps.iter().enumerate().filter_map(|(number, step)| {
            let actual = self.perform(block, number, step);
            let difference = self.fences.difference(&step.shown, &actual)?;
            Some(format!("{}\n{difference}\nfull output:\n{actual}", step.command))
        });
        differences.collect()
    }

    fn perform(&mut self, block: &Block, number: usize, step: &Step) -> String {
        let options: Vec<&str> = block.notes("redis-cli").collect();
        let meanwhile: Vec<&str> = block.notes("meanwhile").collect();
        let command = self.fences.substitute(&step.command);
        if step.is_shell {
            self.shell(&command)
        } else if command.starts_with("PSUBSCRIBE") {
            self.listen(&command, &meanwhile, step.shown.lines().count())
        } else if number == 0 && !meanwhile.is_empty() {
            let waiter = self.start_waiting(&options, &command);
            for command in meanwhile {
                self.redis_cli_now(&[], command);
            }
            output_of(waiter)
        } else {
            self.redis_cli_now(&options, &command)
        }
    }

    /// The output of redis-cli for a command.
    fn redis_cli_now(&self, options: &[&str], command: &str) -> String {
        output_of(self.redis_cli(options, command))
    }

    /// Starts a redis-cli with a command that waits in the queue of its lock.
    fn start_waiting(&self, options: &[&str], command: &str) -> Child {
        let words: Vec<&str> = command.split_whitespace().collect();
        let (key, owner) = (words[1], words[2]);
        let mut client = self.server.client();
        let replaced = client.queue(key).iter().filter(|waiter| *waiter == owner).count();
        let calls =
            |client: &mut dlock_testkit::Client| client.server_info("commandstats", "cmdstat_dlock.acquire");
        let before = calls(&mut client);
        let child = self.redis_cli(options, command);
        wait_for("the waiter in the queue", || {
            let owners = client.queue(key);
            let own = owners.iter().filter(|waiter| *waiter == owner).count();
            own > replaced || (own == replaced && own > 0 && calls(&mut client) != before)
        });
        child
    }

    fn redis_cli(&self, options: &[&str], command: &str) -> Child {
        let mut child = Command::new(redis_cli().expect("the test checked this"))
            .args(["--no-raw", "-p", &self.server.port().to_string()])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli can be run");
        let mut input = child.stdin.take().expect("it is a pipe");
        writeln!(input, "{command}").expect("redis-cli reads");
        child
    }

    /// The keyspace events that redis-cli prints. The page abbreviates the reply to the subscription as `...`.
    fn listen(&self, command: &str, meanwhile: &[&str], lines: usize) -> String {
        let mut client = self.server.client();
        let output = self.directory.path().join("events");
        let file = File::create(&output).expect("a temporary directory is writable");
        let mut child = Command::new(redis_cli().expect("the test checked this"))
            .args(["--no-raw", "-p", &self.server.port().to_string()])
            .args(command.split_whitespace())
            .stdout(file)
            .spawn()
            .expect("redis-cli can be run");
        wait_for("the subscription", || client.ask::<i64>("PUBSUB NUMPAT") > 0);
        for command in meanwhile {
            self.redis_cli_now(&[], command);
        }
        // "Reading messages..." and three lines of the reply.
        let all_lines = 4 + lines - 1;
        let text = || fs::read_to_string(&output).expect("the file was created above");
        wait_for("the events", || text().lines().count() >= all_lines);
        child.kill().expect("redis-cli runs until it is killed");
        let _ = child.wait();
        let events: Vec<String> = text().lines().skip(4).map(str::to_owned).collect();
        format!("...\n{}", events.join("\n"))
    }

    /// Output and errors of a shell command. The tool is in PATH, the server at the address of the page.
    fn shell(&self, command: &str) -> String {
        let port = self.server.port().to_string();
        let tools = workspace_binary("dlock").expect("the test checked this");
        let tools = tools.parent().expect("a program is in a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args([
                "-c",
                &format!("exec 2>&1\n{}", command.replace(SHOWN_PORT, &port)),
            ])
            .env(
                "PATH",
                format!("{}:{}:{path}", self.directory.path().display(), tools.display()),
            )
            .env("DLOCK_URL", format!("redis://127.0.0.1:{port}/"))
            .env("COLUMNS", "100")
            .current_dir(self.directory.path())
            .output()
            .expect("bash can be run");
        String::from_utf8_lossy(&output.stdout).replace(&port, SHOWN_PORT)
    }
}

/// The output of a redis-cli, once it has exited.
fn output_of(mut child: Child) -> String {
    wait_for("the exit of redis-cli", || {
        child.try_wait().is_ok_and(|status| status.is_some())
    });
    let output = child.wait_with_output().expect("redis-cli has exited");
    let text = String::from_utf8_lossy(&output.stdout);
    // redis-cli prints an empty line after an error, and the duration of slow commands: `(0.98s)`.
    let lines = text.trim_end().lines().filter(|line| !is_duration(line));
    let lines: Vec<&str> = lines.collect();
    lines.join("\n")
}

fn is_duration(line: &str) -> bool {
    let seconds = line.strip_prefix('(').and_then(|line| line.strip_suffix("s)"));
    seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
}

impl Drop for Session {
    fn drop(&mut self) {
        for child in &mut self.waiting {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn transcript_is_split_into_commands_and_output() {
    let step = |is_shell, command: &str, shown: &str| Step {
        is_shell,
        command: command.into(),
        shown: shown.into(),
    };
    assert_eq!(
        steps("127.0.0.1:7379> A b\nx\ny\n127.0.0.1:7379> C\n$ d \\\n  e\nz\n"),
        [
            step(false, "A b", "x\ny\n"),
            step(false, "C", ""),
            step(true, "d \\\n  e", "z\n")
        ]
    );
}
