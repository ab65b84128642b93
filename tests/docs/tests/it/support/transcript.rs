//! Replays transcripts: blocks with the prompt of redis-cli or a shell.
//!
//! The blocks of a page are typed in order on a new server, as a reader would type them:
//!
//! - A command at the end of a block goes on waiting if the page continues in another terminal. Its output is compared
//!   when its wait ends, and need not be shown.
//! - `<fence>` in a command is the fence of the last grant that the page has shown.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::page::{Block, Page};
use dlock_testkit::{Client, Server, wait_for};
use tempfile::{NamedTempFile, TempDir};

use super::output_match::{Fences, first_fence};
use super::{SHOWN_PORT, is_installed, workspace_binary};

/// Prompt of redis-cli on the pages.
const CLI_PROMPT: &str = "127.0.0.1:7379> ";
/// Prompt of a shell on the pages.
const SHELL_PROMPT: &str = "$ ";
/// What a reader replaces in a command.
const FENCE_PLACEHOLDER: &str = "<fence>";

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

/// Whether the reader types this block in a terminal of its own.
fn is_in_another_terminal(block: &Block) -> bool {
    block.introduction.contains("terminal")
}

/// The command line client of the server.
pub fn redis_cli() -> Option<&'static str> {
    ["redis-cli", "valkey-cli"]
        .into_iter()
        .find(|name| is_installed(name))
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

/// Replays the transcripts of a page. Returns how many there are, and the differences from the page.
pub fn replay(page: &Page, has_tool: bool) -> (usize, Vec<String>) {
    let is_replayed = |block: &&Block| is_transcript(block) && (has_tool || block.language != "console");
    let blocks: Vec<&Block> = page.blocks.iter().filter(is_replayed).collect();
    if blocks.is_empty() {
        return (0, Vec::new());
    }
    let mut reader = Reader::start();
    for (number, block) in blocks.iter().enumerate() {
        reader.place = page.place(block);
        let next = blocks.get(number + 1);
        reader.type_block(block, next.is_some_and(|next| is_in_another_terminal(next)));
    }
    (blocks.len(), reader.finish())
}

/// A reader with terminals and a server.
struct Reader {
    server: Server,
    client: Client,
    directory: TempDir,
    fences: Fences,
    /// The fence of the last grant.
    last_fence: Option<u64>,
    waiting: Vec<Waiting>,
    /// The block that is typed.
    place: String,
    differences: Vec<String>,
}

/// A command that waits in its own terminal.
struct Waiting {
    step: Step,
    place: String,
    cli: RedisCli,
}

/// A redis-cli that runs. Killed when it is dropped.
struct RedisCli {
    child: Child,
    output: NamedTempFile,
}

impl Reader {
    fn start() -> Self {
        let directory = TempDir::with_prefix("dlock-docs-").expect("a temporary directory can be made");
        install_redis_cli_wrapper(directory.path());
        let server = Server::start();
        Self {
            client: server.client(),
            server,
            directory,
            fences: Fences::default(),
            last_fence: None,
            waiting: Vec::new(),
            place: String::new(),
            differences: Vec::new(),
        }
    }

    fn type_block(&mut self, block: &Block, continues_in_another_terminal: bool) {
        let mut steps = steps(&block.code).into_iter().peekable();
        while let Some(step) = steps.next() {
            let may_wait = steps.peek().is_none() && continues_in_another_terminal;
            self.perform(step, may_wait);
            self.compare_ended();
        }
    }

    fn perform(&mut self, step: Step, may_wait: bool) {
        let fence = self
            .last_fence
            .map_or_else(String::new, |fence| fence.to_string());
        let command = step.command.replace(FENCE_PLACEHOLDER, &fence);
        let place = self.place.clone();
        if step.is_shell {
            let actual = self.shell(&command);
            return self.compare(&step, &place, &actual);
        }
        let before = self.waiting_at_server();
        let mut cli = RedisCli::start(self.server.port(), &command);
        let awaited = format!("{place}: the reply to `{command}`, or another terminal on the page");
        wait_for(&awaited, || {
            cli.has_exited() || (may_wait && self.waiting_at_server() > before)
        });
        if cli.has_exited() {
            self.compare(&step, &place, &cli.output());
        } else {
            self.waiting.push(Waiting { step, place, cli });
        }
    }

    /// Compares what a step printed with the page.
    fn compare(&mut self, step: &Step, place: &str, actual: &str) {
        let shown = without_duration(&step.shown);
        if let Some(difference) = self.fences.difference(&shown, actual) {
            let command = &step.command;
            self.differences.push(format!(
                "{place}: {command}\n{difference}\nfull output:\n{actual}"
            ));
        }
        if step.command.contains("DLOCK.ACQUIRE ") {
            self.last_fence = first_fence(actual).or(self.last_fence);
        }
    }

    /// Compares the commands that no longer wait, now that the server has replied to the last step.
    fn compare_ended(&mut self) {
        let still_waiting = self.waiting_at_server();
        while self.waiting.len() > still_waiting {
            let mut ended = None;
            wait_for("the end of a wait", || {
                ended = self
                    .waiting
                    .iter_mut()
                    .position(|waiting| waiting.cli.has_exited());
                ended.is_some()
            });
            let waiting = self.waiting.remove(ended.expect("it was waited for"));
            self.compare_waited(&waiting);
        }
    }

    fn compare_waited(&mut self, Waiting { step, place, cli }: &Waiting) {
        if !step.shown.is_empty() {
            self.compare(step, place, &cli.output());
        }
    }

    /// How many clients of the server wait.
    fn waiting_at_server(&mut self) -> usize {
        let blocked = self.client.server_info("clients", "blocked_clients");
        blocked.parse().expect("a number")
    }

    /// What the page shows of commands that still wait must have been printed.
    fn finish(mut self) -> Vec<String> {
        for waiting in std::mem::take(&mut self.waiting) {
            let lines = without_duration(&waiting.step.shown).lines().count();
            let Waiting { step, place, .. } = &waiting;
            wait_for(&format!("{place}: the output of `{}`", step.command), || {
                waiting.cli.output().lines().count() >= lines
            });
            self.compare_waited(&waiting);
        }
        self.differences
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

impl RedisCli {
    /// Starts redis-cli with a command.
    fn start(port: u16, command: &str) -> Self {
        let output = NamedTempFile::new().expect("a temporary file can be made");
        let mut child = Command::new(redis_cli().expect("the test checked this"))
            .args(["--no-raw", "-p", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(output.reopen().expect("the file is there"))
            .spawn()
            .expect("redis-cli can be run");
        let mut input = child.stdin.take().expect("it is a pipe");
        writeln!(input, "{command}").expect("redis-cli reads");
        Self { child, output }
    }

    fn has_exited(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// What it has printed until now.
    fn output(&self) -> String {
        let printed = fs::read_to_string(self.output.path()).expect("redis-cli prints text");
        without_duration(printed.trim_end())
    }
}

impl Drop for RedisCli {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An output without the line in which redis-cli says how long a slow command took: `(0.98s)`.
fn without_duration(output: &str) -> String {
    let lines = output.lines().filter(|line| !is_duration(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_duration(line: &str) -> bool {
    let seconds = line.strip_prefix('(').and_then(|rest| rest.strip_suffix("s)"));
    seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(is_shell: bool, command: &str, shown: &str) -> Step {
        Step {
            is_shell,
            command: command.into(),
            shown: shown.into(),
        }
    }

    #[test]
    fn transcript_is_split_into_commands_and_output() {
        assert_eq!(
            steps("127.0.0.1:7379> A b\nx\ny\n127.0.0.1:7379> C\n$ d \\\n  e\nz\n"),
            [
                step(false, "A b", "x\ny\n"),
                step(false, "C", ""),
                step(true, "d \\\n  e", "z\n")
            ]
        );
    }
}
