use std::sync::Mutex;

use redis::RedisResult;

use crate::sync::lock;

/// Servers that know where locks are.
pub(super) trait Source: Send {
    type Answer: Clone + Send;

    fn ask(&mut self) -> impl Future<Output = RedisResult<Self::Answer>> + Send;
}

/// Asks servers where locks are, and remembers the answer until it turns out to be outdated. Asking takes several
/// connections, and a long time when one of the servers does not respond.
pub(super) struct Discovery<S: Source> {
    source: tokio::sync::Mutex<S>,
    known: Mutex<Option<S::Answer>>,
}

impl<S: Source> Discovery<S> {
    pub fn new(source: S) -> Self {
        Self {
            source: tokio::sync::Mutex::new(source),
            known: Mutex::new(None),
        }
    }

    /// One task asks; those that arrive meanwhile share its answer.
    pub async fn get(&self) -> RedisResult<S::Answer> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let mut source = self.source.lock().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let answer = source.ask().await?;
        *lock(&self.known) = Some(answer.clone());
        Ok(answer)
    }

    /// Asks even if there is an answer.
    pub async fn refresh(&self) -> RedisResult<S::Answer> {
        self.forget_if(|_| true);
        self.get().await
    }

    pub fn forget_if(&self, is_outdated: impl FnOnce(&mut S::Answer) -> bool) {
        lock(&self.known).take_if(is_outdated);
    }

    fn known(&self) -> Option<S::Answer> {
        lock(&self.known).clone()
    }
}
