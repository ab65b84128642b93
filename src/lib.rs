//! tmp
#[allow(dead_code, unused_imports, missing_docs)]
mod lock;
