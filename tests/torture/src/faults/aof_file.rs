//! The append-only file of a server.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use dlock_testkit::Server;

/// The incremental AOF of a server. Usable after the server is killed.
pub struct AofFile(PathBuf);

impl AofFile {
    /// Finds the file. There must be no rewrite in progress.
    pub fn of(server: &Server) -> Self {
        let files =
            fs::read_dir(server.directory().join("appendonlydir")).expect("the server has an AOF directory");
        let files = files.flatten().map(|entry| entry.path());
        let mut files = files.filter(|path| path.to_string_lossy().ends_with(".incr.aof"));
        Self(files.next().expect("the server has an incremental AOF"))
    }

    /// In bytes.
    pub fn length(&self) -> u64 {
        fs::metadata(&self.0).expect("the AOF exists").len()
    }

    /// How much of it is on disk, if the server has noted that.
    pub fn synced(&self) -> u64 {
        let notes = PathBuf::from(format!("{}.synced", self.0.display()));
        let text = fs::read_to_string(notes).unwrap_or_default();
        // A file that was never synced need not exist.
        text.trim().parse().unwrap_or(0)
    }

    /// Truncates the file, as a power failure would. The server must not be running.
    pub fn truncate(&self, length: u64) {
        let file = OpenOptions::new().write(true).open(&self.0);
        let file = file.expect("the AOF exists");
        file.set_len(length).expect("a file can be truncated");
    }
}
