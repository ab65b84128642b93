//! The append-only file of a server that is dead, or will be.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use dlock_testkit::Server;

/// The file that a server appends to. It outlives the process.
pub struct AofFile(PathBuf);

impl AofFile {
    /// The one of a server that logs and has not rewritten its log for now.
    pub fn of(server: &Server) -> Self {
        let files = fs::read_dir(server.folder().join("appendonlydir")).expect("the server logs");
        let files = files.flatten().map(|entry| entry.path());
        let mut files = files.filter(|path| path.to_string_lossy().ends_with(".incr.aof"));
        Self(files.next().expect("the server appends to a file"))
    }

    /// In bytes.
    pub fn length(&self) -> u64 {
        fs::metadata(&self.0).expect("the log is there").len()
    }

    /// What a dying machine does to what it has not put on disk yet. The server must be dead.
    pub fn cut_to(&self, length: u64) {
        let file = OpenOptions::new().write(true).open(&self.0);
        let file = file.expect("the log is there");
        file.set_len(length).expect("a file can be cut");
    }
}
