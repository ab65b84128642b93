//! The outcome of a request to several servers of which too few agreed.

use std::fmt;

use crate::connect::Address;
use crate::error::Error;

/// Too few of several servers agreed, and why the others did not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NoQuorum {
    /// How many servers had to agree.
    pub needed: usize,
    /// How many had agreed when it was certain that too few would.
    pub agreed: usize,
    /// Those that had refused or failed by then.
    pub failures: Vec<NodeFailure>,
}

/// Why one of several servers did not agree.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeFailure {
    /// The server's address, without credentials.
    pub server: String,
    /// Its error.
    pub error: Error,
}

impl NodeFailure {
    pub(crate) fn at(server: &Address, error: Error) -> Self {
        Self {
            server: server.to_string(),
            error,
        }
    }
}

impl NoQuorum {
    /// Whether a retry may succeed: some servers were unavailable, and none rejected the request for good. Servers on
    /// which others hold the lock count as neither.
    pub(crate) fn is_transient(&self) -> bool {
        let errors = self.failures.iter().map(|failure| &failure.error);
        let mut others = errors.filter(|error| !matches!(error, Error::Busy)).peekable();
        others.peek().is_some() && others.all(Error::is_transient)
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, agreed, .. } = self;
        write!(f, "{needed} servers had to agree, but only {agreed} did")?;
        for (n, NodeFailure { server, error }) in self.failures.iter().enumerate() {
            f.write_str(if n == 0 { ": " } else { "; " })?;
            match error {
                Error::Redis(error) => write!(f, "{error}")?,
                error => write!(f, "{server}: {error}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: &str) -> Error {
        redis::make_extension_error(code.to_owned(), None).into()
    }

    #[test]
    fn missing_quorum_is_transient_if_all_failures_are() {
        let no_quorum = |errors: &[Error]| {
            let failures = errors.iter().map(|error| NodeFailure {
                server: "127.0.0.1:6379".into(),
                error: error.clone(),
            });
            Error::NoQuorum(NoQuorum {
                needed: 2,
                agreed: 0,
                failures: failures.collect(),
            })
        };
        let grace_error = || answered("GRACE");
        assert!(no_quorum(&[Error::no_response(), grace_error()]).is_transient());
        assert!(no_quorum(&[Error::Busy, Error::no_response()]).is_transient());
        assert!(!no_quorum(&[Error::Busy, Error::Busy]).is_transient());
        assert!(!no_quorum(&[Error::no_response(), answered("NOAUTH")]).is_transient());
    }
}
