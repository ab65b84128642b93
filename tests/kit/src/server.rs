use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::Value;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Client;
use crate::port::free_port;
use crate::process::{Process, StartFailure, server_program, signal};
use crate::wait::wait_for;

const PORT_ATTEMPTS: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server with the module, in a temporary directory that is removed with it.
pub struct Server {
    // Before the directory: the process ends first.
    process: Process,
    directory: TempDir,
    port: u16,
    launcher: Vec<OsString>,
    config: String,
    environment: Vec<(String, OsString)>,
}

/// The path of the module: `DLOCK_MODULE`, else the library that cargo built for the tests of the workspace.
pub fn module_path() -> PathBuf {
    if let Some(path) = env::var_os("DLOCK_MODULE") {
        return path.into();
    }
    // Tests are in target/<profile>/deps/, programs and examples beside that directory or in another one there.
    let program = env::current_exe().expect("a program knows its own path");
    let places = program.ancestors().skip(1).take(2);
    places
        .flat_map(|place| [place.join("libdlock.so"), place.join("deps/libdlock.so")])
        .find(|path| path.exists())
        .expect("cargo builds the module with the tests of the workspace: `cargo test --workspace`, or set DLOCK_MODULE")
}

/// A server without persistence, and a client of it.
pub fn start() -> (Server, Client) {
    start_with("")
}

/// A server with more lines in its configuration file, and a client of it.
pub fn start_with(lines: &str) -> (Server, Client) {
    let server = Server::with(lines);
    let client = server.client();
    (server, client)
}

impl Server {
    /// A server without persistence.
    pub fn start() -> Self {
        Self::with("")
    }

    /// A server with more lines in its configuration file.
    pub fn with(lines: &str) -> Self {
        Self::try_with(lines).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// As [`Server::with`], for lines that may keep the server from starting: then the error is its log.
    pub fn try_with(lines: &str) -> Result<Self, String> {
        Self::launch(with_module(lines))
    }

    /// A server with more environment variables, at every start.
    pub fn with_environment(lines: &str, environment: Vec<(String, OsString)>) -> Self {
        Self::launch_in(
            new_directory(),
            vec![server_program()],
            with_module(lines),
            environment,
        )
        .unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// A server with the module, which another one loads: its first argument is the path of the module.
    pub fn with_module_loaded_by(loader: &Path, environment: Vec<(String, OsString)>) -> Self {
        let config = format!("loadmodule {} {}\n", loader.display(), module_path().display());
        Self::launch_in(new_directory(), vec![server_program()], config, environment)
            .unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// As [`Server::try_with`], started by other words than the server program alone: another program, or one that
    /// runs the server, such as valgrind.
    pub fn launched_by(launcher: &[impl AsRef<OsStr>], lines: &str) -> Result<Self, String> {
        let launcher = launcher.iter().map(|word| word.as_ref().to_owned()).collect();
        Self::launch_in(new_directory(), launcher, with_module(lines), Vec::new())
    }

    /// A server on a copy of the files in a directory, or its log if it does not start.
    pub fn on_copy_of(directory: &Path, lines: &str) -> Result<Self, String> {
        let own = new_directory();
        copy_directory(directory, own.path());
        Self::launch_in(own, vec![server_program()], with_module(lines), Vec::new())
    }

    pub fn without_module(lines: &str) -> Self {
        Self::launch(format!("{lines}\n")).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// A server without the module, on a copy of the files of another server, or its log if it does not start.
    pub fn without_module_on_copy_of(other: &Self, lines: &str) -> Result<Self, String> {
        let directory = new_directory();
        copy_directory(other.directory.path(), directory.path());
        Self::launch_in(
            directory,
            vec![server_program()],
            format!("{lines}\n"),
            Vec::new(),
        )
    }

    /// A cluster node without slots.
    pub fn cluster_node() -> Self {
        Self::cluster_node_with("")
    }

    pub fn cluster_node_with(lines: &str) -> Self {
        // A short node timeout also makes the node serve sooner. However long an election takes on a busy machine, the
        // replica goes on trying.
        let bus = free_port();
        Self::with(&format!(
            "cluster-enabled yes\ncluster-port {bus}\ncluster-node-timeout 2000\ncluster-replica-validity-factor 0\n{lines}"
        ))
    }

    fn launch(config: String) -> Result<Self, String> {
        Self::launch_in(new_directory(), vec![server_program()], config, Vec::new())
    }

    fn launch_in(
        directory: TempDir,
        launcher: Vec<OsString>,
        config: String,
        environment: Vec<(String, OsString)>,
    ) -> Result<Self, String> {
        let (process, port) = launch(directory.path(), &launcher, &config, &environment, free_port())?;
        Ok(Self {
            process,
            directory,
            port,
            launcher,
            config,
            environment,
        })
    }

    /// A replica that has synced with this server.
    pub fn replica(&self) -> Self {
        self.replica_with("")
    }

    pub fn replica_with(&self, lines: &str) -> Self {
        let replica = Self::with(&format!("replicaof 127.0.0.1 {}\n{lines}", self.port));
        replica.wait_until_linked();
        replica
    }

    /// Waits until this replica has synced and is linked to its primary.
    pub fn wait_until_linked(&self) {
        let mut client = self.client();
        wait_for("a link to the primary", || {
            client.server_info("replication", "master_link_status") == "up"
        });
    }

    /// `kill -9`, and a start on the same data.
    pub fn crash_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// SHUTDOWN, and waits for the process to exit.
    pub fn shut_down(&mut self) {
        self.client().send("SHUTDOWN");
        self.process.wait_for_exit();
    }

    /// SHUTDOWN, and a start on the same data.
    pub fn restart(&mut self) {
        self.shut_down();
        self.start_again();
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the process until [`Server::resume`]: connections stay open, nothing is answered.
    pub fn stop(&self) {
        signal(self.process.id(), Signal::STOP);
    }

    pub fn resume(&self) {
        signal(self.process.id(), Signal::CONT);
    }

    /// Starts a server that was killed, on the same data and if possible on the same port.
    pub fn start_again(&mut self) {
        self.process.wait_for_exit();
        (self.process, self.port) = launch(
            self.directory.path(),
            &self.launcher,
            &self.config,
            &self.environment,
            self.port,
        )
        .unwrap_or_else(|log| panic!("the server did not start again:\n{log}"));
    }

    /// More lines for the next start. Later lines win.
    pub fn add_config(&mut self, lines: &str) {
        self.config.push_str(lines);
        self.config.push('\n');
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.url())
    }

    /// Whether the server replies that it is a primary. `false` also if a Sentinel that promotes it has closed the
    /// connection.
    pub fn is_primary(&self) -> bool {
        let client = Client::try_connect(&self.url());
        let role = client.and_then(|mut client| client.call("ROLE"));
        matches!(role, Ok(Value::Array(fields)) if fields.first() == Some(&Value::BulkString(b"master".to_vec())))
    }

    pub fn client_resp3(&self) -> Client {
        Client::connect(&format!("{}?protocol=resp3", self.url()))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The process id, for signals. It changes with each start.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether the process has exited.
    pub fn has_exited(&mut self) -> bool {
        self.process.has_exited()
    }

    /// Fails if the server has exited.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        assert!(!self.process.has_exited(), "the server has exited");
    }
}

fn new_directory() -> TempDir {
    TempDir::with_prefix("dlock-test-").expect("a temporary directory can be made")
}

fn with_module(lines: &str) -> String {
    format!("loadmodule {}\n{lines}\n", module_path().display())
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a temporary directory is writable");
    for entry in std::fs::read_dir(from).expect("the directory is there").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Starts a server on `port`, or on another one when that is taken.
fn launch(
    directory: &Path,
    launcher: &[OsString],
    config: &str,
    environment: &[(String, OsString)],
    port: u16,
) -> Result<(Process, u16), String> {
    let mut port = port;
    for _ in 0..PORT_ATTEMPTS {
        let config = format!("{}{config}", own_config(directory, port));
        match Process::start(launcher, directory, &config, environment, || {
            is_ready(directory, port)
        }) {
            Ok(process) => return Ok((process, port)),
            Err(StartFailure::AddressInUse) => port = free_port(),
            Err(StartFailure::Exited(log)) => return Err(log),
        }
    }
    panic!("no free port in {PORT_ATTEMPTS} attempts");
}

/// The configuration of every server of the tests. Later lines win.
fn own_config(directory: &Path, port: u16) -> String {
    format!(
        "bind 127.0.0.1\nport {port}\ndir {}\nsave \"\"\nenable-debug-command yes\nenable-module-command yes\n\
         repl-diskless-sync-delay 0\nrepl-timeout 600\n",
        directory.display()
    )
}

/// Whether the server in `directory` replies. Another test's server may have taken the port: it has another directory.
fn is_ready(directory: &Path, port: u16) -> bool {
    let ready = || -> redis::RedisResult<bool> {
        let client = redis::Client::open(("127.0.0.1", port))?;
        let mut connection = client.get_connection_with_timeout(CONNECT_TIMEOUT)?;
        connection.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        let (_, dir): (String, PathBuf) = redis::cmd("CONFIG")
            .arg("GET")
            .arg("dir")
            .query(&mut connection)
            .map(|(k, v): (String, String)| (k, v.into()))?;
        let _: String = redis::cmd("PING").query(&mut connection)?;
        Ok(dir.canonicalize().ok() == directory.canonicalize().ok())
    };
    ready().unwrap_or(false)
}
