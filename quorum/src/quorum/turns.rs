use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Where the tasks of this process queue for doorways, by the hash of the key: so that they stay in order whichever
/// connections their requests are sent on, and need few.
#[derive(Default)]
pub(super) struct Turns([Arc<Mutex<()>>; 32]);

impl Turns {
    pub async fn turn(&self, key: &[u8]) -> OwnedMutexGuard<()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let index = hasher.finish() % self.0.len() as u64;
        Arc::clone(&self.0[index as usize]).lock_owned().await
    }
}
