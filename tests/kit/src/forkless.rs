//! Snapshots without a fork, on servers that cannot write them: a double of the module API.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::server::Server;

const SOURCE: &str = include_str!("forkless.c");

/// A double of two functions of the server, for the module that it loads. A key can be as if it were being saved, and
/// values are saved on another thread.
pub struct Forkless {
    directory: TempDir,
}

impl Forkless {
    /// Nothing is being saved. Compiles the double.
    pub fn new() -> Self {
        let directory = TempDir::with_prefix("dlock-forkless-").expect("a temporary directory can be made");
        let double = Self { directory };
        std::fs::write(double.path("forkless.c"), SOURCE).expect("a temporary directory is writable");
        let built = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(double.path("forkless.so"))
            .arg(double.path("forkless.c"))
            .args(["-ldl", "-lpthread"])
            .status();
        let built = built.unwrap_or_else(|error| panic!("cannot run cc: {error}"));
        assert!(built.success(), "cc failed to compile forkless.c");
        double.end();
        double
    }

    /// A server with the module, loaded by the double.
    pub fn start(&self) -> Server {
        let saved: (String, OsString) = ("TEST_SAVED_KEY".into(), self.path("saved").into_os_string());
        Server::with_module_loaded_by(&self.path("forkless.so"), vec![saved])
    }

    /// From now on this key is being saved.
    pub fn begin(&self, key: &str) {
        // At once, whenever the server looks.
        std::fs::write(self.path("next"), key).expect("a temporary directory is writable");
        std::fs::rename(self.path("next"), self.path("saved")).expect("a temporary directory is writable");
    }

    /// It has been saved.
    pub fn end(&self) {
        self.begin("");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Default for Forkless {
    fn default() -> Self {
        Self::new()
    }
}
